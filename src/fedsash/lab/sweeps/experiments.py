"""The experiments of a sweep: ordinary ones, and those that have a table of a network, which are simulated on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .. import config
from ..config import Experiment
from ..config import network as networked
from ..config.errors import prefixed
from ..config.files import read


def load(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment in a TOML file, after `overrides`. Raises `ConfigError`."""
    with prefixed(path):
        return parse(read(path), overrides)


def parse(table: Mapping[str, Any], overrides: Iterable[str] = ()) -> Experiment:
    """The experiment that the content of a file describes, after `overrides`. Raises `ConfigError`."""
    on_network = "network" in table or "scheduler" in table
    return networked.parse(table, overrides) if on_network else config.parse(table, overrides)


def simulated(experiment: Experiment) -> bool:
    """Whether it is one on a network, which shares no rounds with others."""
    return isinstance(experiment, networked.NetworkExperiment)


def stateless(experiment: Experiment) -> bool:
    """Whether its runs save no states: a study of time on a network, without models."""
    return isinstance(experiment, networked.NetworkExperiment) and not experiment.network.learning
