"""The settings that runs have in common, and the settings in which they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ....basics.files import flat
from ...config.experiment import CARRIED_OUT
from ..collect import CollectedRun
from .markup import MISSING


def differing(runs: Sequence[CollectedRun]) -> dict[str, list[str]]:
    """The axes of sweeps and the settings that differ, each with the value of every run."""
    tables = [_labels(run) | _texts(_what(run)) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    values = {key: [table.get(key, MISSING) for table in tables] for key in keys}
    return {key: of_runs for key, of_runs in values.items() if len(set(of_runs)) > 1}


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in flat(table)}


def _what(run: CollectedRun) -> dict[str, Any]:
    """The settings of what a run computes; an engine's precision changes numbers by more than rounding."""
    engine = run.config.get("engine", {})
    precision = {"engine": {"precision": engine["precision"]}} if "precision" in engine else {}
    return {key: value for key, value in run.settings.items() if key not in CARRIED_OUT} | precision


def _labels(run: CollectedRun) -> dict[str, str]:
    """The run's labels on its sweep's axes. An axis that is a setting is left out."""
    known = dict(flat(run.config))
    return {axis: label for axis, label in run.labels.items() if axis not in known}


def common(runs: Sequence[CollectedRun]) -> list[tuple[str, str]]:
    """The main settings that are the same in all runs."""
    found = []
    for title, key in GLANCE.items():
        shown = {_glance(run.settings.get(key)) for run in runs}
        if len(shown) == 1 and (text := shown.pop()):
            found.append((title, text))
    return found


def _glance(value: Any) -> str:
    """A table as `name, key value, key value`."""
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    plain = {key: json.dumps(v, default=str) for key, v in value.items() if not isinstance(v, Mapping | str) and v}
    return ", ".join([*filter(None, [str(value.get("name", ""))]), *(f"{key} {text}" for key, text in plain.items())])


GLANCE = {
    "data": "data",
    "transform": "transform",
    "partition": "partition",
    "model": "model",
    "method": "method",
    "clients train with": "local",
    "who takes part": "sampling",
    "server": "server",
    "broadcast": "broadcast",
    "scheduler": "scheduler",
    "rounds": "rounds",
    "seed": "seed",
}
