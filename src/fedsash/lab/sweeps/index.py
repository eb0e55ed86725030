"""`sweep.json`: the runs in a sweep's folder, their labels on its axes, their rounds, the runs that failed, and the
names of those that no command has asked for yet.
"""

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
        before["others"] = []
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
        others = [name for name in dict.fromkeys([*before["others"], *sweep.others]) if name not in runs]
        table = {"title": sweep.title, "axes": axes, "runs": runs, "rounds": rounds, "failed": reasons}
        table["others"] = others
        files.write_table(out / NAME, table)


def read(out: Path) -> dict[str, Any]:
    """What `write` wrote. Raises `RunError` if the file is damaged."""
    file = out / NAME
    table = {"rounds": {}, "others": []} | files.table(file)  # older versions wrote no rounds, and no others
    for key, kind in (("axes", list), ("runs", dict), ("rounds", int), ("failed", str)):
        entries = table.get(key)
        if not isinstance(entries, dict) or not all(isinstance(value, kind) for value in entries.values()):
            raise RunError(f"{file}: {key} must be a table of {WORDS[kind]}")
    others = table["others"]
    if not isinstance(others, list) or not all(isinstance(name, str) for name in others):
        raise RunError(f"{file}: others must be a list of texts")
    return table
