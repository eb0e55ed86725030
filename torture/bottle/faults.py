"""The faults of a case. Each kind is a function, with its words in the story and the time at which it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from .altered import WAYS, without_finite_state
from .machine import Machine
from .node import Node
from .passage import Passage
from .setup import Setup
from .told import CallbackError, Told

if TYPE_CHECKING:
    from .network import Network

ALTERED = "the reply is altered"
"""The words of the kinds that alter a reply, each in its way."""
NO_STATE = "has no state of round"
"""What a node says which does not have the state of a client that counts."""
DESERTED = 0.08
"""The share of cases in which all nodes go for good."""


class When(Enum):
    """What the number `at` of a fault counts, and to what the fault happens."""

    REQUEST = "with the n-th request, to its passage"
    NODE = "at a moment, to a node"
    OPERATION = "at the server's n-th operation of its disk, or look at the clock or the grid, to its machine"
    DISK_OPERATION = "at the n-th operation of the server's disk, to its machine"
    NETWORK = "at a moment, to all nodes"
    SERVER = "at a moment, to the server's machine"
    ROUND = "after a round, to what is told of the run"


class Lasts(Enum):
    """For how long something may follow from a fault, beside the time in which answers are read."""

    MOMENT = "no longer"
    AMOUNT = "its amount of seconds"
    EVER = "for ever"


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its `words`, when it happens, and what it does to what it befalls, with an amount.

    The node that it befalls may give one of the reasons `because` that contain these words, and no other one: never
    that of a mistake in a program. Only if it `diverges`, an upload that is not finite is to be expected.
    """

    words: str
    when: When
    act: Callable[[Any, float], None]
    because: tuple[str, ...] = ()
    diverges: bool = False
    lasts: Lasts = Lasts.MOMENT

    def excuses(self, why: str) -> bool:
        """Whether a client may be missing for this reason because of such a fault."""
        return any(reason in why for reason in self.because)

    @property
    def lasting(self) -> bool:
        """Whether more than the request that it befalls is late because of such a fault."""
        return self.when in (When.NODE, When.SERVER) or self.act is _kill_at_work

    @property
    def fails(self) -> bool:
        """Whether an answer may be of no use because of such a fault."""
        return bool(self.because) or self.diverges


KINDS: list[Kind] = []
"""All kinds, in the order of this file."""


def kind(
    words: str,
    when: When,
    *,
    because: tuple[str, ...] = (),
    diverges: bool = False,
    lasts: Lasts = Lasts.MOMENT,
) -> Callable[[Callable[[Any, float], None]], Callable[[Any, float], None]]:
    """Add a function to the kinds of faults."""

    def add(act: Callable[[Any, float], None]) -> Callable[[Any, float], None]:
        KINDS.append(Kind(words, when, act, because, diverges, lasts))
        return act

    return add


@kind("the request is lost", When.REQUEST)
def _lose_request(passage: Passage, amount: float) -> None:
    passage.requests.clear()


@kind("the request is not stored", When.REQUEST)
def _refuse_request(passage: Passage, amount: float) -> None:
    passage.stored = False


@kind("the reply is lost", When.REQUEST)
def _lose_reply(passage: Passage, amount: float) -> None:
    passage.replies.clear()


@kind("the request is late", When.REQUEST)
def _delay_request(passage: Passage, seconds: float) -> None:
    passage.requests = [delay + seconds for delay in passage.requests]


@kind("the reply is late", When.REQUEST)
def _delay_reply(passage: Passage, seconds: float) -> None:
    passage.replies = [delay + seconds for delay in passage.replies]


@kind("the request comes twice", When.REQUEST)
def _double_request(passage: Passage, seconds: float) -> None:
    passage.requests += [delay + seconds for delay in passage.requests]


@kind("the reply comes twice", When.REQUEST)
def _double_reply(passage: Passage, seconds: float) -> None:
    passage.replies += [delay + seconds for delay in passage.replies]


def _alter_reply(way: str, passage: Passage, amount: float) -> None:
    passage.alteration = way


for _way, _reasons in WAYS.items():
    KINDS.append(Kind(ALTERED, When.REQUEST, partial(_alter_reply, _way), _reasons, diverges=_way == "nan"))


@kind("an old reply comes again", When.REQUEST)
def _repeat_old_reply(passage: Passage, amount: float) -> None:
    passage.old_reply = True


@kind("the training fails", When.REQUEST, because=("failed: the node has failed",))
def _fail_training(passage: Passage, amount: float) -> None:
    passage.fails = True


@kind("the node dies in it", When.REQUEST)
def _kill_at_work(passage: Passage, variant: float) -> None:
    passage.death = 1 + int(variant) % 12
    passage.restart = 5.0 + int(variant) % 60


@kind("the node is killed", When.NODE)
def _kill_node(node: Node, seconds: float) -> None:
    node.leave(seconds)


@kind("the node loses its power", When.NODE)
def _cut_power_of_node(node: Node, seconds: float) -> None:
    node.leave(seconds)
    node.machine.powered = False


@kind("the node gets an earlier disk", When.NODE, because=(NO_STATE,), lasts=Lasts.EVER)
def _set_disk_back(node: Node, seconds: float) -> None:
    node.leave(seconds)
    node.machine.disk.put(node.machine.chance.choice(node.disks))


@kind("the node is paused", When.NODE)
def _pause_node(node: Node, seconds: float) -> None:
    node.paused_until = node.machine.world.now + seconds


@kind("the node comes back under another id", When.NODE)
def _rename_node(node: Node, seconds: float) -> None:
    node.leave(seconds / 5)  # soon enough that it is asked again before the run ends
    node.change_id()


@kind("the node lies about its samples", When.NODE, because=WAYS["samples"], lasts=Lasts.AMOUNT)
def _let_lie(node: Node, seconds: float) -> None:
    node.lie(seconds)


@kind(
    "the node's samples are broken",
    When.NODE,
    because=("features must be finite",),
    diverges=True,
    lasts=Lasts.AMOUNT,
)
def _break_samples(node: Node, seconds: float) -> None:
    node.break_samples(seconds)


@kind("the node's kept state is damaged", When.NODE, because=("that is not finite",), lasts=Lasts.EVER)
def _damage_kept_state(node: Node, seconds: float) -> None:
    node.leave(seconds)
    node.machine.disk.put(without_finite_state(node.machine.disk.content()))


@kind("the node's disk is full", When.NODE, because=("No space left",), lasts=Lasts.AMOUNT)
def _fill_disk_of_node(node: Node, seconds: float) -> None:
    node.machine.fill_disk(seconds)


@kind("the node has a twin", When.NODE, because=(NO_STATE,), lasts=Lasts.EVER)
def _let_twin_join(node: Node, amount: float) -> None:
    node.let_twin_join()


@kind("all nodes go for good", When.NETWORK)
def _desert(network: Network, amount: float) -> None:
    for node in network.nodes:
        node.go()
    network.world.limit = min(network.world.limit, network.world.now + network.patience)


@kind("the server is killed", When.OPERATION)
@kind("the server is killed at its disk", When.DISK_OPERATION)
def _kill_server(server: Machine, amount: float) -> None:
    server.die("is killed")


@kind("the server loses its power", When.OPERATION)
@kind("the server loses its power at its disk", When.DISK_OPERATION)
def _cut_power_of_server(server: Machine, amount: float) -> None:
    server.powered = False
    server.die("loses its power")


@kind("the server's disk is full", When.SERVER)
def _fill_disk_of_server(server: Machine, seconds: float) -> None:
    server.fill_disk(seconds)


@kind("the server's clock jumps", When.SERVER)
def _jump_ahead(server: Machine, seconds: float) -> None:
    server.jump_ahead(seconds)


@kind("the server is paused", When.SERVER)
def _pause_server(server: Machine, seconds: float) -> None:
    server.pause(seconds)


@kind("the server's callback fails", When.ROUND)
def _fail_callback(told: Told, amount: float) -> None:
    raise CallbackError


@dataclass(frozen=True)
class Fault:
    """A fault of a kind: the number of the request, the moment or the operation, for which node, and how much.

    `amount` is in seconds for what lasts, and otherwise chooses a variant.
    """

    kind: Kind
    at: float
    node: int = 0
    amount: float = 0.0

    def lasts(self, follows: float) -> float:
        """For how many seconds something may follow from it, if answers are read within so many."""
        match self.kind.lasts:
            case Lasts.MOMENT:
                return follows
            case Lasts.AMOUNT:
                return self.amount + follows
            case Lasts.EVER:
                return inf

    def befall(self, it: Any) -> None:
        """Let it happen to what it befalls."""
        self.kind.act(it, self.amount)

    def __str__(self) -> str:
        text = self.kind.words
        if self.kind.when is When.NODE:
            text = text.replace("the node", f"node {self.node}")
        return f"{text} ({self.amount:.0f})"


def drawn(chance: Random, setup: Setup) -> list[Fault]:
    """The faults of a case with this setup; each case has some kinds of them only.

    Many late messages come just before or after the deadline. Flower's own strategies wait for nodes for ever: theirs
    do not all go for good.
    """
    nodes = setup.nodes
    rounds = setup.rounds
    requests = 2 * nodes * rounds
    seconds = 8.0 * rounds
    faults: list[Fault] = []
    of_requests = _some_words(chance, When.REQUEST)
    of_nodes = _some_words(chance, When.NODE)
    for _ in range(chance.randint(0, requests // 2)):
        about_deadline = chance.uniform(setup.deadline - 2, setup.deadline + 1)
        amount = chance.choice([chance.uniform(0, 90), about_deadline])
        each = chance.choice(_of_words(chance.choice(of_requests)))
        faults.append(Fault(each, chance.randrange(requests), amount=amount))
    for _ in range(chance.randint(0, rounds // 2)):
        each = chance.choice(_of_words(chance.choice(of_nodes)))
        faults.append(Fault(each, chance.uniform(0, seconds), chance.randrange(nodes), chance.uniform(0, 90)))
    for _ in range(chance.randint(0, 3)):
        faults.append(Fault(chance.choice(_kinds(When.OPERATION)), chance.randrange(1, 120 * rounds)))
    for _ in range(chance.randint(0, 3)):
        faults.append(Fault(chance.choice(_kinds(When.DISK_OPERATION)), chance.randrange(1, 30 * rounds)))
    for _ in range(chance.randint(0, 1)):
        each = chance.choice(_kinds(When.SERVER))
        faults.append(Fault(each, chance.uniform(0, seconds), amount=chance.uniform(0, 200)))
    for _ in range(chance.randint(0, 1)):
        faults.append(Fault(chance.choice(_kinds(When.ROUND)), chance.randrange(1, rounds + 1)))
    if setup.how != "averaged" and chance.random() < DESERTED:
        faults.append(Fault(chance.choice(_kinds(When.NETWORK)), chance.uniform(0, seconds / 3)))
    return faults


def _kinds(when: When) -> list[Kind]:
    return [each for each in KINDS if each.when is when]


def _of_words(words: str) -> list[Kind]:
    return [each for each in KINDS if each.words == words]


def _some_words(chance: Random, when: When) -> list[str]:
    """The words of at least one of the kinds, in any order."""
    words = list(dict.fromkeys(each.words for each in _kinds(when)))
    return chance.sample(words, chance.randint(1, len(words)))
