"""Runs that start from another run's state."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..server.state import State
from ..settings.errors import RunError, check
from ..settings.fingerprint import differences
from ..settings.limits import CountFromZero
from ..settings.setting import Setting

log = logging.getLogger("fedsash")

ANEW = " (anew)"
"""The end of the name under which an average that begins anew is looked for in the source, which has none like it."""


@dataclass(frozen=True)
class Fork(Setting):
    """The start of a run: the state that another run has saved after a round, with its metrics up to then.

    An average that has other settings there, or observed other vectors (see `Broadcast.order`), begins anew. The run
    raises `RunError` as it begins if there is no such state, or if it is of another model or method.
    """

    folder: Path | str
    """the folder of the other run"""
    round: CountFromZero
    """the round after which the state was saved"""
    names: Mapping[str, str] = field(default_factory=dict)
    """the name of an average in the other run, by its name in this run, if the names differ; empty if it begins anew"""


def sources(fork: Fork, averages: Iterable[str], here: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """The name that each of our `averages` has in the source; one with other settings there gets a name of nothing.

    `here` and `there` are the fingerprints of both. Raises `SettingError` if two would go on from one, and for a name
    that none of the averages has.
    """
    requirement = "must name an average of the other run, or be empty: then it begins anew"
    for name, source_name in fork.names.items():
        check(f"averages.{name}" in here, "Fork.names", name, "must be the name of an average of this run")
        check(not source_name or f"averages.{source_name}" in there, "Fork.names", source_name, requirement)
    names = {name: fork.names.get(name, name) or f"{name}{ANEW}" for name in averages}
    for name, source_name in names.items():
        twice = [other for other, others_source in names.items() if others_source == source_name and other != name]
        requirement = f"must be another average for each: {name} and {', '.join(twice)} would both go on from "
        check(not twice, "Fork.names", dict(fork.names), f"{requirement}{source_name}")
    for name, source_name in names.items():
        sentences = differences(_settings(name, name, here), _settings(name, source_name, there))
        if sentences:
            log.warning("an average begins anew: %s", sentences[0])
            names[name] = f"{name}{ANEW}"
    return names


def _settings(our_name: str, name: str, fingerprint: Mapping[str, str]) -> dict[str, str]:
    """The settings of the average `name`, and what it observes, under our name for it.

    Global models and clients' means can't be mixed in one mean.
    """
    settings = {}
    if f"averages.{name}" in fingerprint:
        settings[our_name] = fingerprint[f"averages.{name}"]
    if f"observed.{name}" in fingerprint:
        settings[f"what {our_name} observes"] = fingerprint[f"observed.{name}"]
    return settings


def renamed(state: State, names: Mapping[str, str]) -> State:
    """The state with its averages renamed."""
    averages = {names[name]: vectors for name, vectors in state.averages.items()}
    past = {names[name]: models for name, models in state.past.items()}
    return replace(state, averages=averages, past=past)


def other_samples(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """How the samples of a fork's clients differ from those of the run that it goes on from; empty if they do not."""
    ours = {name: here[name] for name in ("data", "partition", "clients") if name in here}
    return differences(ours, there)


def taken_over(here: Mapping[str, str], there: Mapping[str, str], state: State) -> Iterator[str]:
    """A line if a fork's server or method goes on from the memory of another class, under equal names.

    `state` is the first one of the fork.
    """
    for part, memory in (("server", state.optimiser), ("method", state.server_state)):
        ours = _class_name(here[part])
        theirs = _class_name(there[part])
        if memory and ours != theirs:
            names = ", ".join(memory)
            yield f"{ours} goes on from what {theirs} has remembered ({names}), which may mean something else"


def _class_name(text: str) -> str:
    """The name of the class in the text of a fingerprint, such as `FedProx(mu=0.1)` or `mine.Method()`."""
    return text.partition("(")[0].rpartition(".")[2]


def check_kept(here: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Raise `RunError` unless a fork keeps the model's tensors, how they are shared, and what its past on a network is
    replayed by.

    `here` and `there` are the fingerprints of the fork and of the run that it goes on from.
    """
    names = ("defaults", "layout.order", "personal", "buffers")
    kept = {name: text for name, text in here.items() if name in names or name.startswith("past.")}
    if sentences := differences(kept, there):
        raise RunError(f"a fork must keep what its state depends on: {'; '.join(sentences)}")
