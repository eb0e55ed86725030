"""`sweep.json`: the runs in a sweep's folder, their labels on its axes, and the runs that failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from ...basics.errors import RunError
from ...basics.typed import fit, in_words
from ..config import ConfigError
from ..records import read_json, write_json
from ..runs.lock import held
from .axes import Sweep

NAME = "sweep.json"
FORM = {"title": str, "axes": dict[str, list[str]], "runs": dict[str, dict[str, str]], "failed": dict[str, str]}
"""The types of its values."""
log = logging.getLogger("fedsash")


def write(out: Path, sweep: Sweep, failed: Mapping[str, str]) -> None:
    """Write the file. Runs of the same axes that other commands have trained, or train now, stay in the file.

    Raises `ConfigError` if the folder holds a sweep over other axes.
    """
    with held(out, wait=log.warning):
        new: dict[str, Any] = {"axes": {axis: [] for axis in sweep.axes}, "runs": {}, "failed": {}}
        before = read(out) if (out / NAME).exists() else new
        if list(before["axes"]) != list(sweep.axes):
            there, here = ", ".join(before["axes"]), ", ".join(sweep.axes)
            raise ConfigError(f"{out} holds a sweep over {there}, not over {here}: choose another folder")
        axes = {axis: list(dict.fromkeys([*before["axes"][axis], *labels])) for axis, labels in sweep.axes.items()}
        runs = {run.name: run.labels for run in sweep.runs}
        others = {name: reason for name, reason in before["failed"].items() if name not in runs}
        known = {"runs": before["runs"] | runs, "failed": {**others, **failed}}
        write_json(out / NAME, {"title": sweep.title, "axes": axes, **known})


def read(out: Path) -> dict[str, Any]:
    """What `write` wrote. Raises `RunError`, which names the file, if it is of another form."""
    found = read_json(out / NAME)
    for key, kind in FORM.items():
        if fit(kind, found.get(key)) is MISSING:
            raise RunError(f"{out / NAME} is damaged: {key} must be {in_words(kind, _named)}")
    return found


def _named(kind: Any, many: bool) -> str:
    return "tables" if many else "a table"
