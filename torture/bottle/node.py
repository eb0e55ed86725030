"""A node in the bottle, with a real ClientApp on a machine of its own."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from flwr.app import Context, Error, Message, RecordDict

from fedsash.flower.nodes.roll_call import TRIES

from .disk import Content
from .machine import Machine

OVERDUE = (33.0, 60.0)
"""Flower notices after so many seconds that a node has gone which has not taken its leave: a heartbeat is due every
30 s, and the last one promises the next within twice as long."""
RESTART = 1.0
"""The seconds that a node needs to be started again."""
KEPT = 20.0
"""What is on a node's disk is kept every so many seconds, so that it may get an earlier disk."""


def node_id(number: int) -> int:
    """The first id of a node in the network; the ids are not in the order of the numbers."""
    return 100 - 7 * number


class Node:
    """A node: a machine, the app that its process runs, and its id in the network.

    `let_twin_join` lets another node join that says that it holds the same clients; it has none of their state. With
    `broken` samples no upload is finite. `online` has the moment until which Flower takes the node to be there, under
    each id that it had.
    """

    def __init__(
        self, number: int, id: int, machine: Machine, new_app: Callable[[Node], Any], let_twin_join: Callable[[], None]
    ) -> None:
        self.number = number
        self.id = id
        self.machine = machine
        self.let_twin_join = let_twin_join
        self.online: dict[int, float] = {}
        self.gone = False
        self.has_left = False
        self.undisturbed_since = 0.0
        self.unknown = False
        self.paused_until = 0.0
        self.lies = False
        self.broken = False
        self.disks: list[Content] = []
        self._failures = 0
        self._new_app = new_app
        self._app: Any = None
        self._state = RecordDict()
        self._start()
        self._keep_disk()

    @property
    def calm_since(self) -> float:
        """Since when it has been live, and neither it nor a request to it was disturbed.

        It is infinite if the node is not live, or if its answers to the server's roll call were such that it may have
        been refused.
        """
        if not self.machine.alive or self.unknown:
            return inf
        return max(self.undisturbed_since, self.paused_until)

    def disturb(self, seconds: float = 0.0) -> None:
        """Count as disturbed from now on for so many seconds."""
        self.undisturbed_since = max(self.undisturbed_since, self.machine.world.now + seconds)

    def begin_roll_call(self) -> None:
        """Be asked by a new process of the server, which knows nothing of the answers to an earlier one."""
        self.unknown = False
        self._failures = 0

    def fail_roll_call(self) -> None:
        """Answer a roll call with an error, or with what can't be right: after some such answers it is refused."""
        self._failures += 1
        if self._failures >= TRIES:
            self.unknown = True

    def go(self) -> None:
        """Be gone for good."""
        self.gone = True
        self.leave(0.0)

    def leave(self, seconds: float) -> None:
        """Be gone for so many seconds."""
        if self.machine.alive:
            self.machine.alive = False
            self.has_left = True
            self.online[self.id] = self._missed()
        self.machine.world.after(seconds, self.start_again)

    def change_id(self) -> None:
        """Have another id from the next start on. The former one holds the clients until Flower misses it."""
        now = self.machine.world.now
        self.disturb(self.online.get(self.id, now) - now)
        self.id += 1000

    def die_at_work(self, seconds: float) -> None:
        """Die, and be started again after so many seconds."""
        self.machine.die("dies at work")
        self.has_left = True
        self.online[self.id] = self._overdue()
        self.machine.world.after(seconds, self.start_again)

    def _missed(self) -> float:
        """The moment at which Flower misses it: at once if it takes its leave, as it does half of the time."""
        if self.machine.chance.random() < 0.5:
            return self.machine.world.now
        return self._overdue()

    def _overdue(self) -> float:
        """The moment at which its heartbeat is overdue."""
        return self.machine.world.now + self.machine.chance.uniform(*OVERDUE)

    def start_again(self) -> None:
        """Start its process, unless it runs or is gone for good."""
        if not self.machine.alive and not self.gone:
            self.machine.world.tell(f"{self.machine.name} is started again")
            self._start()

    def lie(self, seconds: float) -> None:
        """Lie about the samples for so many seconds."""
        self.lies = True
        self.machine.world.after(seconds, self._be_honest)

    def break_samples(self, seconds: float) -> None:
        """Be started again with broken samples, and after so many seconds with the right ones."""
        self.broken = True
        self.leave(RESTART)
        self.machine.world.after(seconds, self._mend_samples)

    def answer(self, message: Any) -> Any:
        """Its answer to a message. Raises `Killed` if its process dies."""
        context = Context(1, self.id, {"partition-id": self.number}, self._state, {})
        with self.machine.at_work():
            try:
                return self._app(message, context)
            except Exception as error:  # as Flower's own process of a ClientApp does
                return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)

    def _start(self) -> None:
        self.machine.start()
        self._app = self._new_app(self)
        self._state = RecordDict()
        self.online[self.id] = inf
        self.disturb()

    def _mend_samples(self) -> None:
        self.broken = False
        self.leave(RESTART)

    def _be_honest(self) -> None:
        self.lies = False

    def _keep_disk(self) -> None:
        if self.machine.powered:
            self.disks.append(self.machine.disk.content())
        self.machine.world.after(KEPT, self._keep_disk)
