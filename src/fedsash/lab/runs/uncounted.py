"""Averages without a model at the end of a session."""

from __future__ import annotations

from collections.abc import Iterator

from ...state import State
from .driver import Driver


def uncounted(driver: Driver, state: State) -> Iterator[str]:
    """A line for each average that observes rounds of this run and has no model in it, so that it stays the model."""
    made = range((state.forked or 0) + 1, state.round + 1)
    why = "no round gave a finite model, or `take` does not count it in `seen`"
    for name, average in driver.averages.items():
        if any(map(average.observes, made)) and not average.count(state.averages[name]):
            yield f"averages.{name}: no model is in it after round {state.round}, so it stays the model: {why}"
