"""What `run`, `open_run`, `Federation` and `Tracker` are given is refused in one line where it has the wrong type."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedsash as fs
from fedsash.runs import UnknownModelError
from support.worlds import data, federation

WRONG: dict[str, Callable[[], Any]] = {
    "rounds = 2.5: must be an integer": lambda: fs.run(federation(), 2.5),  # type: ignore[arg-type]
    "rounds = '10': must be an integer": lambda: fs.run(federation(), "10"),  # type: ignore[arg-type]
    "checkpoint = 1: must be a Checkpoint": lambda: fs.run(federation(), 1, checkpoint=1),  # type: ignore[arg-type]
    "trajectory = 10: must be RunningSums": lambda: fs.run(federation(), 1, trajectory=10),  # type: ignore[arg-type]
    "fork = 'mine@10': must be a Fork": lambda: fs.run(federation(), 1, fork="mine@10"),  # type: ignore[arg-type]
    "callbacks = <built-in function print>: must be a list of objects whose classes extend Callback": lambda: fs.run(
        federation(), 1, callbacks=print
    ),  # type: ignore[arg-type]
    "federation = 'digits.toml': must be a Federation": lambda: fs.run("digits.toml", 1),  # type: ignore[arg-type]
    "Federation.model = 'mlp': must be an nn.Module": lambda: fs.Federation("mlp", data()),  # type: ignore[arg-type]
    "Federation.model = Linear: must be an nn.Module": lambda: fs.Federation(nn.Linear, data()),  # type: ignore[arg-type]
    "averages = 5: must be a name": lambda: federation(averages={5: fs.Window(5)}),
    "Tracker.averages = Linear": lambda: fs.Tracker(nn.Linear(1, 1), fs.Window(3)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("line", WRONG)
def test_arguments_of_the_wrong_type_are_refused_in_one_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(fs.SettingError) as error:
        WRONG[line]()
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_a_numpy_integer_is_a_number_of_rounds() -> None:
    assert fs.run(federation(), np.int64(2), progress=False).state.round == 2  # type: ignore[arg-type]


def test_a_folder_may_be_a_text() -> None:
    with pytest.raises(FileNotFoundError, match="nowhere holds no run"):
        fs.open_run("nowhere")


def test_an_unknown_model_is_an_error_for_users_that_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UnknownModelError("wima", ["model"])))
    assert isinstance(error, fs.FedsashError) and isinstance(error, KeyError)
    assert str(error) == "there is no model 'wima' in this run; there are: model"
