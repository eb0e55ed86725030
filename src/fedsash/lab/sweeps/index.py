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
        new: dict[str, Any] = {"axes": {axis: [] for axis in sweep.axes}, "runs": {}, "rounds": {}, "failed": {}}
        before = read(out) if (out / NAME).exists() else new
        if list(before["axes"]) != list(sweep.axes):
            there = ", ".join(before["axes"])
            here = ", ".join(sweep.axes)
            raise ConfigError(f"{out} holds a sweep over {there}, not over {here}: choose another folder")
        axes = {axis: list(dict.fromkeys([*before["axes"][axis], *labels])) for axis, labels in sweep.axes.items()}
        runs = {run.name: run.labels for run in sweep.runs}
        others = {name: reason for name, reason in before["failed"].items() if name not in runs}
        rounds = before["rounds"] | {run.name: run.experiment.rounds for run in sweep.runs}
        known = {"runs": before["runs"] | runs, "rounds": rounds, "failed": {**others, **failed}}
        files.write_table(out / NAME, {"title": sweep.title, "axes": axes, **known})


def read(out: Path) -> dict[str, Any]:
    """What `write` wrote. Raises `RunError` if the file is damaged."""
    file = out / NAME
    found = {"rounds": {}} | files.table(file)  # it has no rounds if fedsash 0.1 wrote it
    for key, kind in (("axes", list), ("runs", dict), ("rounds", int), ("failed", str)):
        of_one = found.get(key)
        if not isinstance(of_one, dict) or not all(isinstance(value, kind) for value in of_one.values()):
            raise RunError(f"{file}: {key} must be a table of {WORDS[kind]}")
    return found
