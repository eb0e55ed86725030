"""The share of a simulation's data that a node has."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="fedsash[flower] is not installed")

from fedsash.lab.served.apps import data_of


@pytest.mark.parametrize(("partition", "shared"), [("dirichlet_reuse", True), ("iid", False)])
def test_common_samples_of_clients_are_told_since_each_node_holds_out_by_itself(
    partition: str, shared: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "e.toml"
    file.write_text(f'data.name = "digits"\npartition = {{ name = "{partition}", clients = 7 }}\n')
    data = [data_of(file, number) for number in (0, 6)]
    assert [own.numbers.tolist() for own in data if own.numbers is not None] == [[0], [6]]
    assert any("what one node holds out another one may train on" in line for line in caplog.messages) == shared
