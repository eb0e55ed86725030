"""What a server tells the bottle of its run: where it begins, which rounds it has made, which states it has saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from .world import World

if TYPE_CHECKING:
    from .faults import Kind

ANSWERED = 5.0
"""An undisturbed answer comes within so many seconds."""


class CallbackError(Exception):
    """A callback of the run has failed."""


@dataclass(frozen=True)
class Befallen:
    """A node that a fault of a `kind` has befallen. What may follow from it happens from `begin` to `end`."""

    node: int
    kind: Kind
    begin: float
    end: float


class Told:
    """The story of a run, with its violations and the number of its rounds, those that were done again included.

    A round waits for answers until the `deadline`. `asked` are the clients that were sent a request to train, and
    `probed` those whose answer to a probe was read, by the round from 1.

    `saved` are the rounds whose states the server has told to be saved, as far as it has not gone back since. `sent`
    `[D]` is what clients received last as the model of a round, by its number from 1. `answered` are the last request
    to train and its answer that was read, by the client and the round from 1; `heard` is when an answer of a client was
    read last. `after_round` is what else happens after a round, which may raise `CallbackError`.

    `calm_for` gives the seconds for which a node has been live and undisturbed, `was_live` says whether any node was
    live after a moment, and `nodes_stay` whether none has come or gone so far. A round takes at most the seconds that
    `longest_round` gives.
    """

    def __init__(self, world: World, deadline: float) -> None:
        self._world = world
        self._deadline = deadline
        self.violations: list[str] = []
        self.rounds = 0
        self.saved: list[int] = []
        self.sent: dict[int, NDArray[np.float64]] = {}
        self.answered: dict[tuple[int, int], tuple[Message, Message]] = {}
        self.heard: dict[int, float] = {}
        self.asked: dict[int, set[int]] = {}
        self.probed: dict[int, set[int]] = {}
        self.nodes_stay: Callable[[], bool] = lambda: False
        self.calm_for: Callable[[int], float] = lambda node: 0.0
        self.was_live: Callable[[float], bool] = lambda moment: True
        self.longest_round: Callable[[], float] = lambda: inf
        self.after_round: dict[int, Callable[[], None]] = {}
        self._last = 0
        self._rescued = 0
        self._power_lost = False
        self._went_on_after = 0
        self._befallen: list[Befallen] = []
        self._since = 0.0
        self._begins: list[float] = []
        self._made: dict[int, tuple[float, float]] = {}

    def violation(self, line: str) -> None:
        """Something that must not be."""
        self.violations.append(line)
        self._world.tell(f"VIOLATION: {line}")

    def begun(self, round: int, resumed: bool, start_is_saved: bool = False) -> None:
        """A process of the server begins a run, or goes on after this round, whose state is on the disk from now on.

        All saved states are there, but for the newest one if the power was lost since the last beginning. The state
        before it is on the disk even then, and so is the first one: that of round 0, if `start_is_saved`, as by a
        process that has ended without a round.
        """
        if round:
            first, _ = self._made.get(round, (self._since, 0.0))
            self._made[round] = first, self._world.now  # its process may have died before it could tell
        self._since = self._world.now
        self._begins = [self._since]
        self._world.tell(f"goes on after round {round}" if resumed else "a new run begins")
        there = self.saved
        if self._power_lost:
            there = [self._went_on_after, *self.saved[:1], *self.saved[-2:-1]]
        newest = max(there, default=0)
        if round < newest:
            self.violation(f"goes back to round {round}, though round {newest} was on the disk")
        if round < self._rescued:
            self.violation(f"goes back to round {round}, though an exception came after round {self._rescued}")
        self._rescued = 0
        self._power_lost = False
        self._went_on_after = round
        self.sent = {number: w for number, w in self.sent.items() if number <= round}
        self.asked = {number: clients for number, clients in self.asked.items() if number <= round}
        self.probed = {number: clients for number, clients in self.probed.items() if number <= round}
        self.saved = [saved for saved in self.saved if saved < round]
        if round or start_is_saved:
            self.saved.append(round)  # here, too

    def rescued(self) -> None:
        """An exception has ended a process of the server after its last round, whose state must have been saved."""
        self._world.tell(f"a callback fails after round {self._last}")
        self._rescued = self._last

    def power_cut(self) -> None:
        """The newest state may be lost."""
        self._rescued = 0
        self._power_lost = True

    def forked(self, round: int) -> None:
        """Another run begins after this round of a run that has ended."""
        self._world.tell(f"a fork is to begin after round {round}")
        self.saved = []
        self._went_on_after = 0

    def skipped(self, number: int) -> None:
        """A round is skipped: that must not be while no node is there, since all that are left would be in no time."""
        if not self.was_live(self._since):
            self.violation(f"round {number} is skipped, and no node was there")

    def round(self, number: int, line: str) -> None:
        """A round has been made."""
        self.rounds += 1
        self._last = number
        self._made[number] = self._since, self._world.now
        self._since = self._world.now
        self._begins.append(self._since)
        self._world.limit = self._since + self.longest_round()
        self._world.tell(f"round {number}: {line}")

    def befallen(self, node: int, kind: Kind, seconds: float) -> None:
        """A fault befalls a node, or a request to it: what may follow happens within so many seconds."""
        now = self._world.now
        self._befallen.append(Befallen(node, kind, now, now + seconds))

    @property
    def diverged(self) -> bool:
        """Whether a node may have sent an upload that is not finite."""
        return any(each.kind.diverges for each in self._befallen)

    def may_fail(self, node: int) -> bool:
        """Whether an answer of a node that is read now may be of no use."""
        return any(each.node == node and each.kind.fails and self._world.now <= each.end for each in self._befallen)

    def knows(self, node: int) -> bool:
        """Whether the server must know a node in the round that is being made.

        The node was live and undisturbed when an earlier round of this process began, in which the server looked for
        it, and is so since; and it has had the time to answer.
        """
        calm_since = self._world.now - self.calm_for(node)
        looks = [begin for begin in self._begins if begin >= calm_since]
        answered_by = min(looks, default=inf) + ANSWERED
        this_round_began = self._since
        return answered_by <= this_round_began

    def is_silent(self, client: int, node: int) -> bool:
        """Whether nothing was heard of a client since it must have answered, though it may train at any time.

        Its node is live and undisturbed, and no earlier request to it can be waited for any more.
        """
        now = self._world.now
        silent_for = now - max(self.heard.get(client, 0.0), self._begins[0])
        return silent_for > 2 * ANSWERED and self.calm_for(node) > self._deadline + 2 * ANSWERED

    def faults_of(self, node: int, round: int) -> list[Kind]:
        """The kinds of the faults from which something may have followed for a node while a round was made."""
        begin, end = self._made[round]
        return [each.kind for each in self._befallen if each.node == node and begin <= each.end and each.begin <= end]

    def state_saved(self, round: int) -> None:
        """The state after a round has been saved; it may have been told before."""
        if round not in self.saved:
            self.saved.append(round)
