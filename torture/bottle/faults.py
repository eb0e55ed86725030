"""The faults of a case: each at its place, so that one can be left out and the others stay."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

MESSAGE_FAULTS = (
    "the request is lost",
    "the request is not stored",
    "the reply is lost",
    "the request is late",
    "the reply is late",
    "the request comes twice",
    "the reply comes twice",
    "the reply is altered",
    "an old reply comes again",
    "the training fails",
    "the node dies in it",
)
"""What can befall the n-th request of a case, or its reply."""

NODE_FAULTS = (
    "the node is killed",
    "the node loses its power",
    "the node gets an earlier disk",
    "the node is paused",
    "the node comes back under another id",
    "the node lies about its samples",
    "the node's disk is full",
    "the node has a twin",
)
"""What can befall a node at a moment."""

SERVER_FAULTS = ("the server is killed", "the server loses its power")
"""What can befall the server at one of its operations: those of its disk, its looks at the clock and at the grid."""

SERVER_DISK_FAULTS = ("the server is killed at its disk", "the server loses its power at its disk")
"""What can befall the server at one of the operations of its disk."""

SERVER_MOMENTS = ("the server's disk is full", "the server is paused")
"""What can befall the server at a moment, for a while."""


SERVER_ROUNDS = ("the server's callback fails",)
"""What can befall the server after a round."""

FAILING = (
    "the reply is altered",
    "the training fails",
    "the node dies in it",
    "the node loses its power",
    "the node gets an earlier disk",
    "the node lies about its samples",
    "the node's disk is full",
)
"""The faults after which a node may answer that it has failed, or what can't be used; without any of them none does."""

LEAVING = ("the node is killed", "the node comes back under another id")
"""The faults after which a twin without the clients' state may be asked in a node's place."""

LATEST = 31.0
"""A little more than the deadline of a round: many late messages come just before or after it."""


@dataclass(frozen=True)
class Fault:
    """A fault: what it is, the number of the message, the moment or the operation, for which node, and how much.

    `amount` is in seconds for what lasts, and otherwise chooses a variant.
    """

    what: str
    at: float
    node: int = 0
    amount: float = 0.0

    def __str__(self) -> str:
        text = self.what
        if self.what in NODE_FAULTS:
            text = text.replace("the node", f"node {self.node}")
        return f"{text} ({self.amount:.0f})"


def may_fail(faults: list[Fault]) -> bool:
    """Whether a node may answer that it has failed, or what can't be used, after these faults."""
    kinds = {fault.what for fault in faults}
    if "the node has a twin" in kinds and kinds & {*LEAVING, *SERVER_FAULTS, *SERVER_DISK_FAULTS, *SERVER_ROUNDS}:
        return True
    return bool(kinds & set(FAILING))


def drawn(chance: Random, nodes: int, rounds: int) -> list[Fault]:
    """The faults of a case with so many nodes and rounds; each case has some kinds of them only."""
    messages = 2 * nodes * rounds
    seconds = 8.0 * rounds
    operations = 120 * rounds
    disk_operations = 30 * rounds
    faults: list[Fault] = []
    of_messages = chance.sample(MESSAGE_FAULTS, chance.randint(1, len(MESSAGE_FAULTS)))
    of_nodes = chance.sample(NODE_FAULTS, chance.randint(1, len(NODE_FAULTS)))
    for _ in range(chance.randint(0, messages // 2)):
        amount = chance.choice([chance.uniform(0, 90), chance.uniform(LATEST - 3, LATEST)])
        faults.append(Fault(chance.choice(of_messages), chance.randrange(messages), amount=amount))
    for _ in range(chance.randint(0, rounds // 2)):
        what = chance.choice(of_nodes)
        faults.append(Fault(what, chance.uniform(0, seconds), chance.randrange(nodes), chance.uniform(0, 90)))
    for _ in range(chance.randint(0, 3)):
        faults.append(Fault(chance.choice(SERVER_FAULTS), chance.randrange(1, operations)))
    for _ in range(chance.randint(0, 3)):
        faults.append(Fault(chance.choice(SERVER_DISK_FAULTS), chance.randrange(1, disk_operations)))
    for _ in range(chance.randint(0, 1)):
        faults.append(Fault(chance.choice(SERVER_MOMENTS), chance.uniform(0, seconds), amount=chance.uniform(0, 200)))
    for _ in range(chance.randint(0, 1)):
        faults.append(Fault(chance.choice(SERVER_ROUNDS), chance.randrange(1, rounds + 1)))
    return faults
