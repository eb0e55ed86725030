"""The experiments of a sweep: ordinary ones, and those that have a table of a network, which are simulated on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .. import config, network
from ..config import Experiment
from ..config.errors import prefixed
from ..config.files import read


def load(path: Path) -> Experiment:
    """The experiment in a TOML file. Raises `ConfigError`."""
    with prefixed(path):
        return parse(read(path))


def parse(table: Mapping[str, Any], overrides: Iterable[str] = ()) -> Experiment:
    """The experiment that the content of a file describes, after `overrides`. Raises `ConfigError`."""
    on_network = "network" in table or "scheduler" in table
    return network.parse(table, overrides) if on_network else config.parse(table, overrides)


def simulated(experiment: Experiment) -> bool:
    """Whether it is one on a network, which is not resumed, nor shares rounds with others."""
    return isinstance(experiment, network.NetworkExperiment)
