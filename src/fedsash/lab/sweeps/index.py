"""`sweep.json`: the runs in a sweep's folder, their labels on its axes, their rounds, and the runs that failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...settings.errors import RunError
from ...system import files
from ...system.lock import locked
from ..config import ConfigError
from .axes import Sweep

NAME = "sweep.json"
WORDS = {list: "lists", dict: "tables", str: "texts", int: "whole numbers"}
log = logging.getLogger("fedsash")


def write(out: Path, sweep: Sweep, failed: Mapping[str, str]) -> None:
    """Write the file. Runs of the same axes that other commands have trained, or train now, stay in the file.

    Raises `ConfigError` if the folder holds a sweep over other axes.
    """
    with locked(out, wait=log.warning):
        before: dict[str, Any] = {"axes": {axis: [] for axis in sweep.axes}, "runs": {}, "rounds": {}, "failed": {}}
        if (out / NAME).exists():
            before = read(out)
        if list(before["axes"]) != list(sweep.axes):
            saved_axes = ", ".join(before["axes"])
            own_axes = ", ".join(sweep.axes)
            raise ConfigError(f"{out} holds a sweep over {saved_axes}, not over {own_axes}: choose another folder")
        axes = {}
        for axis, labels in sweep.axes.items():
            axes[axis] = list(dict.fromkeys([*before["axes"][axis], *labels]))
        runs = dict(before["runs"])
        rounds = dict(before["rounds"])
        reasons = dict(before["failed"])
        for run in sweep.runs:
            runs[run.name] = run.labels
            rounds[run.name] = run.experiment.rounds
            reasons.pop(run.name, None)
        reasons |= failed
        table = {"title": sweep.title, "axes": axes, "runs": runs, "rounds": rounds, "failed": reasons}
        files.write_table(out / NAME, table)


def read(out: Path) -> dict[str, Any]:
    """What `write` wrote. Raises `RunError` if the file is damaged."""
    file = out / NAME
    table = {"rounds": {}} | files.table(file)  # it has no rounds if fedsash 0.1 wrote it
    for key, kind in (("axes", list), ("runs", dict), ("rounds", int), ("failed", str)):
        entries = table.get(key)
        if not isinstance(entries, dict) or not all(isinstance(value, kind) for value in entries.values()):
            raise RunError(f"{file}: {key} must be a table of {WORDS[kind]}")
    return table
