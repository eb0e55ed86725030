"""Runs that start from another run's state."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..server.state import State
from ..settings.errors import RunError, check
from ..settings.fingerprint import differences
from ..settings.setting import Setting

log = logging.getLogger("fedsash")

ANEW = " (anew)"
"""What follows the name of an average that the source does not have, for our own that begins anew."""


@dataclass(frozen=True)
class Fork(Setting):
    """The start of a run: the state that another run has saved after a round, with its metrics up to then.

    An average that has other settings there, or observed other vectors (see `Broadcast.order`), begins anew.
    """

    folder: Path | str
    """the folder of the other run"""
    round: int
    """the round after which the state was saved"""
    names: Mapping[str, str] = field(default_factory=dict)
    """the name of an average in the other run, by its name in this run, if the names differ"""


def sources(fork: Fork, averages: Iterable[str], here: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """The name that each of our `averages` has in the source; one with other settings there gets a name of nothing.

    `here` and `there` are the fingerprints of both. Raises `SettingError` if two would go on from one.
    """
    names = {name: fork.names.get(name, name) for name in averages}
    for name, theirs in names.items():
        twice = [other for other, its in names.items() if its == theirs and other != name]
        right = f"must be another average for each: {name} and {', '.join(twice)} would both go on from {theirs}"
        check(not twice, "Fork.names", dict(fork.names), right)
    for name, theirs in names.items():
        if how := differences(_of(name, name, here), _of(name, theirs, there)):
            log.warning("an average begins anew: %s", how[0])
            names[name] = f"{name}{ANEW}"
    return names


def _of(ours: str, name: str, fingerprint: Mapping[str, str]) -> dict[str, str]:
    """The settings of the average `name`, and what it observes: global models and clients' means make no one mean."""
    said = {f"averages.{name}": ours, f"observed.{name}": f"what {ours} observes"}
    return {words: fingerprint[key] for key, words in said.items() if key in fingerprint}


def renamed(state: State, names: Mapping[str, str]) -> State:
    """The state with its averages renamed."""
    averages = {names[name]: vectors for name, vectors in state.averages.items()}
    past = {names[name]: models for name, models in state.past.items()}
    return replace(state, averages=averages, past=past)


def other_samples(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """In what the samples of a fork's clients are others than those of the run that it goes on from; empty if they are
    the same."""
    return differences({name: here[name] for name in ("data", "partition", "clients") if name in here}, there)


def taken_over(here: Mapping[str, str], there: Mapping[str, str], state: State) -> Iterator[str]:
    """A line if a fork's server or method goes on from what one of another class has remembered under equal names.

    `state` is the first one of the fork.
    """
    for part, memory in (("server", state.optimiser), ("method", state.server_state)):
        ours, theirs = (of[part].partition("(")[0].rpartition(".")[2] for of in (here, there))
        if memory and ours != theirs:
            its = ", ".join(memory)
            yield f"{ours} goes on from what {theirs} has remembered ({its}), which may mean something else"


def check_kept(here: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Raise `RunError` unless a fork keeps the model's tensors, how they are shared, and what its past on a network is
    replayed by.

    `here` and `there` are the fingerprints of the fork and of the run that it goes on from.
    """
    same = ("defaults", "layout.order", "personal", "buffers")
    kept = {name: here[name] for name in here if name in same or name.startswith("past.")}
    if other := differences(kept, there):
        raise RunError(f"a fork must keep what its state depends on: {'; '.join(other)}")
