"""Runs that start from another run's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...basics.errors import RunError
from ...basics.fingerprint import differences
from ...basics.typed import typed
from ...state import State


@dataclass(frozen=True)
@typed
class Fork:
    """The start of a run: the state that the run in `folder` saved after `round`, with its metrics up to `round`.

    `names` maps the name of an average in this run to its name in the other run, if the names differ.
    """

    folder: Path | str
    round: int
    names: Mapping[str, str] = field(default_factory=dict)


def renamed(state: State, names: Mapping[str, str]) -> State:
    """The state with its averages renamed."""
    averages = {names[name]: vectors for name, vectors in state.averages.items()}
    past = {names[name]: models for name, models in state.past.items()}
    best = {names.get(name, name): best for name, best in state.best.items()}
    return replace(state, averages=averages, past=past, best=best)


def check_sharing(here: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Raise `RunError` unless a fork, and the run that it goes on from, share a model alike; see `fingerprint`."""
    if other := differences({name: here[name] for name in ("personal", "buffers")}, there):
        raise RunError(f"a fork must keep personal and buffers: {'; '.join(other)}")
