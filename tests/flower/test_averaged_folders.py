"""Folders in which a training with averages saves its states, and what else lies in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.apps import Nodes, arrays, vector
from support.worlds import federation

# isort: split
from flwr.serverapp.strategy import FedAvg

from fedsash import EMA, RunError, SettingError, Window, run
from fedsash.extend import Average
from fedsash.flower import Averaged
from fedsash.vector.saved import saved_rounds

START, W3 = arrays(np.zeros(5)), Window(3)


def trained(folder: Path, rounds: int = 6, average: Average = W3) -> Any:
    """The average of a training in a folder."""
    random.seed(0)  # it draws the order of the nodes
    return vector(Averaged(FedAvg(), average, folder=folder).start(Nodes().grid, START, rounds).arrays)


def test_folders_that_are_no_states_are_left_alone_and_count_for_nothing(tmp_path: Path) -> None:
    """Dates look like rounds of eight digits."""
    whole, own = trained(tmp_path / "whole"), [tmp_path / name for name in ("20261125", "20261126", ".cache.tmp")]
    trained(tmp_path, 3)
    for folder in own:
        folder.mkdir()
        (folder / "precious").write_text("kept")
    (tmp_path / ".x.tmp").write_text("a file")
    assert np.array_equal(trained(tmp_path), whole)
    assert saved_rounds(tmp_path) == [5, 6]
    assert all((folder / "precious").read_text() == "kept" for folder in own)


def test_empty_folders_that_are_called_like_rounds_cost_no_state(tmp_path: Path) -> None:
    """After a crash of the machine a state may be one, so they are named, and the state before them is taken."""
    whole = trained(tmp_path / "whole")
    trained(tmp_path, 3)
    for name in ("20261125", "20261126"):
        (tmp_path / name).mkdir()
    assert np.array_equal(trained(tmp_path), whole)
    assert saved_rounds(tmp_path)[:2] == [5, 6]


@pytest.mark.parametrize("name", ["precious", "model.safetensors"])
def test_a_folder_that_stands_where_a_state_belongs_is_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / "00000002").mkdir()
    (tmp_path / "00000002" / name).write_text("kept")
    with pytest.raises(OSError, match="00000002 is not a state: move it elsewhere, or take another folder"):
        trained(tmp_path)
    assert saved_rounds(tmp_path) == [1]


def test_a_run_and_a_training_with_averaged_do_not_share_a_folder(tmp_path: Path) -> None:
    trained(tmp_path / "averaged", 2)
    with pytest.raises(RunError, match="averaged holds the states of another training: choose another folder"):
        run(federation(), 1, out=tmp_path / "averaged")
    run(federation(), 1, out=tmp_path / "run")
    with pytest.raises(SettingError, match=r"Averaged.folder = .*run.*: holds a run of fedsash: take another folder"):
        trained(tmp_path / "run")


def test_settings_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    trained(tmp_path, 2, EMA(0.5))
    with pytest.raises(RunError, match=r"precision at its default there and precision='single' here"):
        trained(tmp_path, 2, EMA(0.5, precision="single"))


def test_another_process_reads_the_averages_of_a_folder(tmp_path: Path) -> None:
    whole = trained(tmp_path)
    averaged = Averaged(FedAvg(), Window(3), folder=tmp_path)
    averaged.start(None, START, num_rounds=0)  # type: ignore[arg-type]
    (name,) = averaged.averages
    assert np.array_equal(vector(averaged.value(name)), whole)
