"""Traces in arrays and in files, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from fedsash.methods.sampling import Uniform, trace_of
from fedsash.network import SimulatedClients
from fedsash.network.clients import Population
from fedsash.settings.errors import SettingError

TABLE = np.array([[1, 0, 1], [0, 0, 1]])


@pytest.mark.parametrize("kind", [np.bool_, np.int64, np.float64])
def test_an_array_and_both_kinds_of_file_hold_the_same_trace(kind: type, tmp_path: Path) -> None:
    np.save(tmp_path / "trace.npy", TABLE.astype(kind))
    np.savetxt(tmp_path / "trace.csv", TABLE, delimiter=",")
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf1,0,1\n0,0,1\n")  # with a byte order mark
    files = [str(tmp_path / name) for name in ("trace.npy", "trace.csv", "marked.csv")]
    for given in (TABLE.astype(kind), *files):
        found = trace_of("Owner", given, "round")
        assert found.dtype == np.bool_ and (found == TABLE).all()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "1,0\n1\n", "1,two\n", "1,2\n", "1,nan\n", "\x00"])
def test_a_file_that_is_no_trace_is_one_error_and_no_warning(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with warnings.catch_warnings(action="error"), pytest.raises(SettingError) as caught:
        trace_of("Owner", str(file), "round")
    assert "Owner.trace" in str(caught.value) and "trace.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sampled_and_simulated_clients_read_the_same_file_and_refuse_it_for_others(tmp_path: Path) -> None:
    np.save(path := str(tmp_path / "trace.npy"), TABLE)
    sizes = np.ones(3, dtype=np.int64)
    asked = [Uniform(3, trace=path).clients(round, sizes, 0).tolist() for round in range(2)]
    presence = Population(SimulatedClients(3, trace=path), sizes, 0).presence()
    there = [[i for i in range(3) if presence.returns(i, float(step)) == step] for step in range(2)]
    assert asked == there == [[0, 2], [2]]
    other = np.ones(4, dtype=np.int64)
    for refused in (
        lambda: Uniform(3, trace=path).clients(0, other, 0),
        lambda: Population(SimulatedClients(4, trace=path), other, 0).presence(),
    ):
        with pytest.raises(SettingError, match="trace: clients = 3: must be the number of clients, 4"):
            refused()
