"""The share of a simulation's data that a node has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="fedsash[flower] is not installed")

from fedsash import Evaluation, SettingError
from fedsash.engines.clients import set_aside
from fedsash.flower.nodes.client import Share
from fedsash.lab.served.apps import data_of
from support.by_default import some


def rows(data: Any, row: int) -> list[list[int]]:
    """A client's training, held-out and test samples."""
    return [own[row].tolist() if len(own) else [] for own in (data.clients, data.held, data.client_test)]


@pytest.mark.parametrize("partition", some(["dirichlet_reuse", "iid"], "dirichlet_reuse"))
@pytest.mark.parametrize("evaluation", [Evaluation(client_test=True), Evaluation(held_out=0.3)], ids=["test", "held"])
def test_nodes_that_are_given_all_clients_split_their_samples_as_the_simulation_does(
    partition: str, evaluation: Evaluation, tmp_path: Path
) -> None:
    """The test set is dealt out once, and what one client holds out no other one trains on."""
    file = tmp_path / "e.toml"
    file.write_text(f'data.name = "digits"\npartition = {{ name = "{partition}", clients = 7 }}\n')
    nodes = [Share(data_of(file, number), number).split(evaluation, 3) for number in range(7)]
    simulated = set_aside(data_of(file, 0), evaluation, 3)
    assert [rows(own, 0) for own in nodes] == [rows(simulated, number) for number in range(7)]
    assert [own.numbers.tolist() for own in nodes if own.numbers is not None] == [[number] for number in range(7)]
    held = np.concatenate([own.held[0] for own in nodes]) if len(nodes[0].held) else np.empty(0)
    assert not any(np.isin(own.clients[0], held).any() for own in nodes)


def test_a_node_of_all_clients_needs_the_number_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text('data.name = "digits"\npartition = { name = "iid", clients = 7 }\n')
    for wrong in (None, 7, -1):
        with pytest.raises(SettingError, match=f"^partition-id = {wrong}: "):
            Share(data_of(file, 0), wrong)
