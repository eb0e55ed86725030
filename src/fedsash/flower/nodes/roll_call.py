"""The roll call: which node holds which clients, and how many samples they have."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np

from ...settings.errors import RunError, one_line, printable, shortened, some
from ...settings.limits import Count, Positive, Unit
from ...settings.setting import Setting
from ...system.host import host
from ...vector.arrays import Ints
from ...vector.saved import versions
from . import wire

T = TypeVar("T")
Seconds: TypeAlias = Annotated[Positive, Unit("in seconds")]
log = logging.getLogger("fedsash")

TRIES = 3
"""How often a node is asked who it is, if its answer is an error or can't be right; one that does not answer is asked
so often before its first question expires."""

COUNTS = {"sizes": "training samples", "held": "held-out samples", "tested": "test samples"}
"""The numbers of samples that a node sends for each client, and what they count."""


@dataclass(frozen=True)
class Waiting(Setting):
    """How long the server waits for nodes, and for how many."""

    deadline: Seconds = 600.0
    """how long after a request was sent its answers are waited for, in seconds"""
    roll_call: Seconds = 120.0
    """how long the beginning of a run waits until every client has a node, and a round until nodes are there, in
    seconds; a node that does not say which clients it holds is asked again after a third of it"""
    poll: Seconds = 0.5
    """how often it looks for answers, in seconds"""
    minimum: Count = 1
    """a round with fewer usable uploads is skipped"""
    most: Count = 10_000_000
    """no client has more training samples than this; a node that says so is refused"""

    @property
    def ask_again(self) -> float:
        """A node that does not say which clients it holds is asked again after so many seconds."""
        return self.roll_call / TRIES

    @property
    def lifetime(self) -> float:
        """How long a message of a round is kept by Flower: it must not expire before its answer is late."""
        return max(2 * self.deadline + 60, self.roll_call)


@dataclass(eq=False)
class Roster:
    """The clients of a federation and their nodes.

    `clients` is their number N; `nodes` has the node of each client that one has named. `counts` `[N]` of each of
    `COUNTS` are those of the roll call: once it is `complete`, a client's sizes do not change. Before, a node that
    leaves loses its clients.
    """

    clients: int
    complete: bool = False
    counts: dict[str, Ints] = field(init=False)
    nodes: dict[int, int] = field(init=False, default_factory=dict)
    _claims: dict[int, dict[int, tuple[int, ...]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = {name: np.zeros(self.clients, dtype=np.int64) for name in COUNTS}

    @property
    def missing(self) -> list[int]:
        """The clients that no node has named."""
        return [client for client in range(self.clients) if client not in self.nodes]

    def knows(self, node: int) -> bool:
        """Whether a node has said which clients it holds, or is refused."""
        return node in self._claims

    def unknown(self, live: set[int]) -> set[int]:
        """The nodes among those that are `live` that have not said which clients they hold."""
        return live - self._claims.keys()

    def forget_gone(self, live: set[int]) -> None:
        """Forget the claims of nodes that are not live any more. One that comes back is asked again."""
        self._claims = {node: claims for node, claims in self._claims.items() if node in live}

    def refuse(self, node: int) -> None:
        """Ask this node for nothing any more."""
        self._claims[node] = {}

    def note_claims(self, node: int, facts: Any, most: int) -> None:
        """Note the clients and their numbers of samples in a node's reply to a roll call.

        Raises `WireError` for a client that is not in the federation, and for numbers of samples above `most`, or for
        no training samples.
        """
        try:
            table = json.loads(facts["numbers"])
            rows = zip(table["clients"], *(table[name] for name in COUNTS), strict=True)
            claims = {int(client): tuple(map(int, counts)) for client, *counts in rows}
        except Exception as error:  # of any class: a stranger may send anything
            raise wire.WireError(f"does not say which clients it holds: {error}") from error
        for client, counts in claims.items():
            if not 0 <= client < self.clients:
                raise wire.WireError(f"holds client {client}, and there are {self.clients}, from 0")
            for (name, kind), count in zip(COUNTS.items(), counts, strict=True):
                least = 1 if name == "sizes" else 0
                if not least <= count <= most:
                    requirement = f"must be {least} to {most:,}"
                    raise wire.WireError(f"says that client {client} has {count} {kind}: {requirement}")
        self._claims[node] = claims

    def settle(self, live: set[int]) -> list[str]:
        """Give each client its node among those that are live, and return lines about the nodes that are refused.

        The first node to claim a client keeps it as long as it is live. So a node that was started again gets its
        client back once its predecessor has gone, under whatever id, if its numbers of samples are the same.
        """
        if not self.complete:
            self.nodes = {client: node for client, node in self.nodes.items() if node in live}
        notes = []
        for node, claims in self._claims.items():
            if node not in live:
                continue
            for client, counts in claims.items():
                owner = self.nodes.get(client)
                if owner == node:
                    continue
                before = tuple(int(self.counts[name][client]) for name in COUNTS)
                if owner in live:
                    notes.append(f"node {node} says that it holds client {client}, as node {owner} does: not asked")
                elif owner is not None and before != counts:
                    notes.append(
                        f"node {node} holds client {client} with {counts} samples instead of {before}: not asked"
                    )
                else:
                    self.nodes[client] = node
                    for name, count in zip(COUNTS, counts, strict=True):
                        self.counts[name][client] = count
        return notes


def pushed(grid: Any, messages: list[Any]) -> list[str]:
    """The ids of messages that are sent, in their order; empty for those that could not be stored.

    Flower's grids put an empty text or None in such a place, leave it out, or send none if they are too large together.
    """
    if not messages:
        return []
    ids = list(grid.push_messages(messages))
    if len(ids) >= len(messages):
        return [message_id or "" for message_id in ids]
    stored = set(ids)
    every = [message.metadata.message_id for message in messages]
    return [message_id if message_id in stored else "" for message_id in every]


def pulled(grid: Any, pending: dict[str, T]) -> Iterator[tuple[Any, T]]:
    """The answers that have arrived, each with the value that was `pending` for it; a second answer is left out.

    One that Flower can't read is lost, and so are those that came with it: nobody knows whose it was.
    """
    from google.protobuf.message import DecodeError

    if not pending:
        return
    try:
        answers = list(grid.pull_messages(list(pending)))
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        log.warning("an answer can't be read, and those that came with it are lost: %s", one_line(error))
        return
    for answer in answers:
        value = pending.pop(answer.metadata.reply_to_message_id, None)
        if value is not None:
            yield answer, value


@dataclass(frozen=True)
class Question:
    """The id of a message that asks a node which clients it holds, and when it was sent."""

    message_id: str
    moment: float


@dataclass(eq=False)
class RollCall:
    """Asks the nodes of a grid which clients they hold. `asked` is what they must know to count their samples.

    A node that has taken the question and was started again before it answered never will: it is asked again. Only an
    error to the last question counts as a try, since those to earlier ones may be Flower's, which let them expire.
    """

    grid: Any
    roster: Roster
    waiting: Waiting
    asked: dict[str, Any]
    _pending: dict[str, int] = field(init=False, default_factory=dict)
    _last: dict[int, Question] = field(init=False, default_factory=dict)
    _tries: Counter[int] = field(init=False, default_factory=Counter)
    _logged: set[str] = field(init=False, default_factory=set)
    _faults: dict[int, str] = field(init=False, default_factory=dict)

    def look(self) -> set[int]:
        """Ask the nodes that have come since the last look, and read the answers; returns the nodes that are live."""
        live = set(self.grid.get_node_ids())
        self.roster.forget_gone(live)
        unknown = self.roster.unknown(live)
        self._forget_all_but(unknown)
        self._pending |= self._ask([node for node in sorted(unknown) if self._is_due(node)])
        for answer, node in pulled(self.grid, self._pending):
            if not self.roster.knows(node):  # one that was asked twice may have answered
                self._read(answer, node)
        for line in self.roster.settle(live):
            self._warn_once(line)
        return live

    def wait(self) -> None:
        """Look until every client has a node.

        Raises `RunError` if that takes too long. It names the clients, and why a node that has come can't be used.
        """
        until = host.clock.now() + self.waiting.roll_call
        over = False
        while True:
            self.look()
            missing = self.roster.missing
            if not missing:
                self.roster.complete = True
                return
            if over:
                late = f"for the clients {some(missing, 10)} within {self.waiting.roll_call:g} s"
                if not self._faults:
                    raise RunError(f"no node has come {late}")
                node, fault = list(self._faults.items())[-1]
                raise RunError(f"no node that can be used has come {late}; the last reason: node {node} {fault}")
            host.clock.sleep(min(self.waiting.poll, max(until - host.clock.now(), 0)))
            over = host.clock.now() >= until

    def _forget_all_but(self, unknown: set[int]) -> None:
        """Forget what was asked of nodes that are not `unknown` any more: they have answered, are refused or have left.

        Their last faults stay: they say why a client has no node.
        """
        self._pending = {message_id: node for message_id, node in self._pending.items() if node in unknown}
        self._last = {node: question for node, question in self._last.items() if node in unknown}
        self._tries = Counter({node: tries for node, tries in self._tries.items() if node in unknown})

    def _read(self, answer: Any, node: int) -> None:
        """Note which clients a node says that it holds, or why its answer can't be used."""
        try:
            facts = wire.reply_facts(answer)
            self.roster.note_claims(node, facts, self.waiting.most)
        except Exception as error:  # of any class: a stranger may send anything
            self._note_fault(node, answer.metadata.reply_to_message_id, shortened(one_line(error), 300))
        else:
            self._faults.pop(node, None)
            self._compare_versions(node, str(facts.get("versions")))

    def _compare_versions(self, node: int, theirs: str) -> None:
        """Warn if a node has other versions; how PyTorch was built, after the "+", does not count."""
        ours = versions()
        if theirs.partition("+")[0] != ours.partition("+")[0]:
            theirs = printable(shortened(theirs, 100))
            self._warn_once(f"node {node} has {theirs}, and the server has {ours}: its numbers may be others")

    @property
    def _lifetime(self) -> float:
        """After so many seconds a question expires, and its answer with it.

        Once rounds have begun, answers are looked for between two of them.
        """
        return self.waiting.lifetime if self.roster.complete else self.waiting.roll_call

    def _is_due(self, node: int) -> bool:
        """Whether to ask a node now: it was not asked yet, or long ago."""
        return node not in self._last or host.clock.now() >= self._last[node].moment + self.waiting.ask_again

    def _note_fault(self, node: int, message_id: str, fault: str) -> None:
        """Note why a node's answer to a question can't be used.

        After an error to the last question it is asked again at the next look, or has had its tries.
        """
        self._faults.pop(node, None)  # so that the latest fault comes last
        self._faults[node] = fault
        if node not in self._last or self._last[node].message_id != message_id:
            return
        del self._last[node]
        self._tries[node] += 1
        if self._tries[node] < TRIES:
            self._warn_once(f"node {node} {fault}: asked again")
        else:
            self.roster.refuse(node)
            self._warn_once(f"node {node} {fault}: not asked any more")

    def _ask(self, nodes: list[int]) -> dict[str, int]:
        """Send the question to these nodes. Returns the node of each message, by the message's id."""
        from flwr.app import ConfigRecord, Message, RecordDict

        if not nodes:
            return {}
        content = RecordDict({wire.REQUEST: ConfigRecord({"numbers": json.dumps(self.asked)})})
        messages = [Message(content, node, wire.ROLL_CALL, ttl=self._lifetime) for node in nodes]
        ids = pushed(self.grid, messages)
        sent = {message_id: node for message_id, node in zip(ids, nodes, strict=True) if message_id}
        now = host.clock.now()
        self._last |= {node: Question(message_id, now) for message_id, node in sent.items()}
        return sent

    def _warn_once(self, line: str) -> None:
        if line not in self._logged:
            log.warning(line)
        self._logged.add(line)
