"""What makes the rounds of a run: a federation, or a scheduler around one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..client.messages import RoundReport
from ..evaluation import Chronicle
from ..server.federation import Federation
from ..server.state import State


class Driver(Protocol):
    """Makes the rounds of a run around a `federation`, which begins the run and is asked for all else.

    `Federation` is a driver: its own rounds are the run's. Another one moves a federation's state in its own way.
    """

    @property
    def federation(self) -> Federation:
        """What begins the run, evaluates and exports its models, and is closed at its end."""
        ...

    @property
    def fingerprint(self) -> dict[str, str]:
        """All that determines the run's numbers, by name: the federation's, and the driver's own settings."""
        ...

    @property
    def chronicle(self) -> Chronicle | None:
        """What it reports of the run beside metrics, such as times on a network; there after `prepare`."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What is trained, by name: the federation's facts, and perhaps a `scheduler`."""
        ...

    def prepare(self, rounds: int | None = None, state: State | None = None) -> list[str]:
        """Get ready for so many `rounds` from a saved `state`; returns lines that say what was chosen."""
        ...

    def round(self, state: State) -> tuple[State, RoundReport]:
        """The next state. Raises `Ended` if the run is over before all its rounds are finished."""
        ...

    def saved(self, state: State) -> State:
        """The state to save: with all that the driver must remember between two rounds, and the fingerprint."""
        ...

    def settled(self, began: Mapping[str, Any]) -> Driver:
        """This driver with the engine that its federation `described` when the run began."""
        ...
