"""Studies in tests: the command, what it wrote, what the run itself recorded, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.cli import main
from fedsash.runs.records import Records

ROUNDS, SAVED = 6, [1, 3, 5, 6]
ENGINE = """
[engine]
kind = "sequential"
workers = 1
compile = false
memory_format = "contiguous"
threads = 1
"""
EXPERIMENT = f"""
rounds = 6
[partition]
name = "own_split:Even"
[local]
batch = 20
[sampling]
count = 3
[averages.w]
name = "window"
size = 3
[averages.wide]
name = "window"
size = 50
[averages.ema]
name = "ema"
decay = 0.5
[averages.late]
name = "window"
size = 2
start = 6
[evaluation]
every = 1
best_on = "test"
[checkpoint]
keep = [1, 3]
{ENGINE}"""
OWN_SPLIT = """
import numpy as np
from dataclasses import dataclass

@dataclass(frozen=True)
class Even:
    "Client i holds every fifth sample from i on, whatever the seed."
    def __call__(self, labels, seed):
        return [np.arange(i, len(labels), 5) for i in range(5)]
"""
"""A run with saved states and a partition of one's own, which does not depend on the seed."""


def fedsash(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def analysis(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "analyses" / f"{name}.json").read_text())
    return found


def recorded(run: Path, model: str, round: int) -> tuple[float, float]:
    """Loss and error of the run's own metrics."""
    (row,) = (r for r in Records(run).load().rows() if (r["model"], r["round"], r["split"]) == (model, round, "test"))
    return row["loss"], 1 - row["accuracy"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert fedsash(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    return error
