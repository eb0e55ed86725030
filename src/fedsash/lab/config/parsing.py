"""Experiment files, read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import tables
from .errors import prefixed
from .experiment import Experiment
from .files import check_content, overridden, read
from .network import NetworkExperiment


def load(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment in a TOML file, after `overrides` such as `"local.lr=0.05"`, in order.

    The value of an override is written as in TOML. If it is not TOML, it is a string. Raises `ConfigError`.
    """
    with prefixed(path):
        return parse(read(path), overrides)


def parse(table: Mapping[str, Any], overrides: Iterable[str] = ()) -> Experiment:
    """The experiment that the content of a file describes, after `overrides`. Raises `ConfigError`.

    It is a `NetworkExperiment` if the table has `network` or `scheduler`.
    """
    for override in overrides:
        table = overridden(table, override)
    check_content(table)
    kind = NetworkExperiment if "network" in table or "scheduler" in table else Experiment
    experiment: Experiment = tables.build(kind, table, "", kind())
    return experiment
