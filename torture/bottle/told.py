"""What a server tells the bottle of its run: where it begins, which rounds it has made, which states it has saved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .world import World


class CallbackError(Exception):
    """A callback of the run has failed."""


class Told:
    """The story of a run, with its violations and the number of its rounds, those that were done again included.

    `saved` are the rounds whose states the server has told to be saved, as far as it has not gone back since.
    `sent` `[D]` is what clients received last as the model of a round, by its number from 1. `may_fail` says whether a
    node may fail in this case, `may_diverge` whether it may send what is not finite, `nodes_change` whether one may
    come or go, and `after_round` is what else happens after a round, which may raise `CallbackError`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[str] = []
        self.rounds = 0
        self.saved: list[int] = []
        self.sent: dict[int, NDArray[np.float64]] = {}
        self.may_fail = True
        self.may_diverge = True
        self.nodes_change = True
        self.after_round: dict[int, Callable[[], None]] = {}
        self._last = 0
        self._rescued = 0

    def violation(self, line: str) -> None:
        """Something that must not be."""
        self.violations.append(line)
        self._world.tell(f"VIOLATION: {line}")

    def begun(self, round: int, resumed: bool) -> None:
        """A process of the server begins a run, or goes on after this round.

        The state before the newest is on the disk, whatever happens, and so is the first one.
        """
        self._world.tell(f"goes on after round {round}" if resumed else "a new run begins")
        durable = max(self.saved[:1] + self.saved[-2:-1], default=0)
        if round < durable:
            self.violation(f"goes back to round {round}, though round {durable} was on the disk")
        if round < self._rescued:
            self.violation(f"goes back to round {round}, though an exception came after round {self._rescued}")
        self._rescued = 0
        self.sent = {number: w for number, w in self.sent.items() if number <= round}
        self.saved = [saved for saved in self.saved if saved < round]
        if round:
            self.saved.append(round)  # its process may have died before it could tell

    def rescued(self) -> None:
        """An exception has ended a process of the server after its last round, whose state must have been saved."""
        self._world.tell(f"a callback fails after round {self._last}")
        self._rescued = self._last

    def power_cut(self) -> None:
        """The newest state may be lost."""
        self._rescued = 0

    def forked(self, round: int) -> None:
        """Another run begins after this round of a run that has ended."""
        self._world.tell(f"a fork is to begin after round {round}")
        self.saved = []

    def round(self, number: int, line: str) -> None:
        """A round has been made."""
        self.rounds += 1
        self._last = number
        self._world.tell(f"round {number}: {line}")

    def state_saved(self, round: int) -> None:
        """The state after a round has been saved; it may have been told before."""
        if round not in self.saved:
            self.saved.append(round)
