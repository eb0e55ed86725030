"""The network of the bottle: nodes, and the messages between them and the processes of a server."""

from __future__ import annotations

import copy
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from flwr.app import Error, Message
from flwr.common.serde import message_from_proto, message_to_proto

from fedsash.flower.nodes.wire import ACTIONS, MODEL, REQUEST, ROLL_CALL

from .altered import altered
from .faults import Fault, Kind
from .machine import Machine
from .node import OVERDUE, Node, node_id
from .passage import Passage
from .setup import Setup
from .told import Told
from .world import Killed, World

MESSAGE_UNAVAILABLE = Error(3, "Error: Message Unavailable - it has expired")
NODE_UNAVAILABLE = Error(5, "Error: Node Unavailable - its heartbeat is overdue")
"""What Flower answers in place of a node."""
SPARE_TIME = 60.0
"""The seconds that a server may take beside the times for which it waits."""
LOOKS = 50
"""A server does not look for answers so often in a second."""


class Network:
    """Carries messages between servers and nodes; all that goes wrong on the way is a fault by the request's number.

    `lied` says whether a node has lied about its samples in a roll call. The machines of nodes are in `folder`, and
    `chance` gives each of them its own. Until a message expires, and as long as its node's heartbeat is not overdue,
    Flower keeps it; then it answers in the node's place.
    """

    def __init__(
        self,
        world: World,
        told: Told,
        setup: Setup,
        folder: Path,
        new_app: Callable[[Node], Any],
        chance: Callable[[str], Random],
    ) -> None:
        self.world = world
        self.nodes: list[Node] = []
        self.faults: dict[int, list[Fault]] = defaultdict(list)
        self.lied = False
        self._told = told
        self._setup = setup
        self._folder = folder
        self._new_app = new_app
        self._new_chance = chance
        self._chance = chance("network")
        self._numbers = count()
        self._befell: dict[str, list[tuple[int, Kind]]] = defaultdict(list)
        self._old_replies: list[Any] = []
        self._server_paused_until = 0.0

    @property
    def follows(self) -> float:
        """For so many seconds something may follow from what befell a request, and again once its answer is read.

        A server that trains at any time reads it late if it evaluates meanwhile, and waits for each node that does not
        answer.
        """
        return 2 * self._setup.deadline

    @property
    def patience(self) -> float:
        """So many seconds after all nodes have gone for good, or after its start, a server has ended.

        They are missed, their answers are too late, and a roll call is over; and another one if clients were to score
        the last model. While the server is paused it can't end.
        """
        paused_for = max(self._server_paused_until - self.world.now, 0.0)
        roll_calls = self._setup.roll_call
        if self._setup.scored_by_clients:
            roll_calls *= 2
        return paused_for + OVERDUE[1] + self._setup.deadline + roll_calls + SPARE_TIME

    def join(self, number: int, name: str, id: int) -> Node:
        """Let a node with this number and this id join, with the clients of this number."""
        machine = Machine(self.world, name, self._folder / name, self._new_chance(name))
        node = Node(number, id, machine, self._new_app, partial(self._join_as_twin, number))
        self.nodes.append(node)
        return node

    def _join_as_twin(self, number: int) -> None:
        if self.deserted:
            return
        place = len(self.nodes)
        self.join(number, f"twin {place} of node {number}", node_id(number) + 500 * place)

    def server_starts(self) -> None:
        """Let no node be unknown for what happened to the roll call of an earlier process of the server."""
        for node in self.nodes:
            node.begin_roll_call()

    def server_is_upset(self, seconds: float) -> None:
        """The server does nothing for so many seconds: its nodes count as disturbed, and what it does ends later."""
        self._server_paused_until = self.world.now + seconds
        self.world.limit += seconds
        for node in self.nodes:
            node.disturb(seconds)

    def calm_for(self, number: int) -> float:
        """For how many seconds the node of this number, and each twin of it, has been live and undisturbed."""
        return self.world.now - max(node.calm_since for node in self.nodes if node.number == number)

    @property
    def deserted(self) -> bool:
        """Whether all nodes have gone for good."""
        return all(node.gone for node in self.nodes)

    def online(self) -> list[int]:
        """The ids of the nodes that Flower takes to be there."""
        return [id for node in self.nodes for id, until in node.online.items() if self.world.now < until]

    def was_live(self, moment: float) -> bool:
        """Whether any node was taken to be there after a moment."""
        return any(until > moment for node in self.nodes for until in node.online.values())

    def nodes_stay(self) -> bool:
        """Whether no node has come or gone since the beginning."""
        return len(self.nodes) == self._setup.nodes and not any(node.has_left for node in self.nodes)

    def with_id(self, number: int) -> Node | None:
        """The node that has an id now."""
        for node in self.nodes:
            if node.id == number:
                return node
        return None

    def note_sent(self, message: Any) -> None:
        """Note which model the clients of a round of the run receive; another strategy of Flower's has its own name."""
        if MODEL in message.content:
            round = int(message.metadata.group_id)
            self._told.sent[round] = message.content[MODEL]["w"].numpy()
            self._told.asked.setdefault(round, set()).update(_clients(message))

    def note_answered(self, message: Any, answer: Any) -> None:
        """Note the answer to a request to train, or to a probe, of the run that its server reads."""
        if REQUEST not in message.content:
            return
        round = int(message.metadata.group_id)
        for client in _clients(message):
            self.note_heard(client)
            if message.metadata.message_type == ACTIONS["train"]:
                self._told.answered[client, round] = message, answer
            else:
                self._told.probed.setdefault(round, set()).add(client)

    def note_heard(self, client: int) -> None:
        """Note that a client is heard; one that may have failed rests before it is asked again."""
        rest = 0.0
        if self._told.may_fail(client % self._setup.nodes):
            rest = self._setup.asked_again
        self._told.heard[client] = self.world.now + rest

    def note_busy(self) -> None:
        """Note that the server looks for answers without a pause."""
        if not self._told.violations:
            self._told.violation(f"the server looks for answers {LOOKS} times in a second")

    def note_read(self, name: str) -> None:
        """Note that the answer to a request is read, from which something follows for its node if a fault befell it."""
        for node, kind in self._befell.get(name, ()):
            self._told.befallen(node, kind, self.follows)

    def send(self, message: Any, arrived: Callable[[Any], None]) -> Passage:
        """Send a request to its node; `arrived` is called with each answer that comes back.

        Returns its passage. A request that is not stored is lost, and its sender knows.
        """
        node = self.with_id(message.metadata.dst_node_id)
        passage = Passage(until=self.world.now + message.metadata.ttl)
        self._befall(next(self._numbers), message, passage, node)
        if node is not None and passage.stored:
            content = message_to_proto(message)
            delay = self._chance.uniform(0.01, 0.5)
            for late in passage.requests:
                self.world.after(delay + late, partial(self._deliver, node.id, content, passage, arrived))
        return passage

    def _befall(self, number: int, message: Any, passage: Passage, node: Node | None) -> None:
        """Let the faults of this number befall the passage of a request, and its node count as disturbed.

        If the request is a question of a roll call, the node is asked again, unless it has failed too often.
        """
        name = message.metadata.message_id
        in_roll_call = message.metadata.message_type == ROLL_CALL
        for fault in self.faults[number]:
            self.world.tell(f"request {number} to node {node.number if node else '?'}: {fault.kind.words}")
            fault.befall(passage)
            if node is not None:
                self._told.befallen(node.number, fault.kind, self.follows)
                self._befell[name].append((node.number, fault.kind))
                seconds = self._setup.asked_again if in_roll_call else fault.amount
                node.disturb(seconds)
        if node is not None and in_roll_call and passage.fails_roll_call:
            node.fail_roll_call()

    def _deliver(self, number: int, content: Any, passage: Passage, arrived: Callable[[Any], None]) -> None:
        """Let the node with this id answer, as soon as it can; without it, or once expired, the request is lost."""
        node = self.with_id(number)
        if node is None or self.world.now >= passage.until:
            return
        again = partial(self._deliver, number, content, passage, arrived)
        if not node.machine.alive:
            self.world.after(1.0, again)
            return
        if node.paused_until > self.world.now:
            self.world.after(node.paused_until - self.world.now, again)
            return
        message = message_from_proto(content)
        message.metadata.__dict__.update(_message_id=content.metadata.message_id)
        try:
            reply = self._answer(node, message, passage)
        except Killed:
            return
        self._send_back(node, reply, passage, arrived)

    def _answer(self, node: Node, message: Any, passage: Passage) -> Any:
        """A node's answer, as it leaves the node. Raises `Killed` if the node's process dies."""
        if passage.fails:
            reply = Message(Error(2, "the node has failed"), reply_to=message)
        else:
            reply = self._worked_out(node, message, passage)
        if node.lies:
            reply = self._altered(node, reply, "samples")
        return reply

    def _worked_out(self, node: Node, message: Any, passage: Passage) -> Any:
        """A node's answer to a message. Raises `Killed` if it dies before the answer has left it.

        If it is to die at work, and has too few operations of its disk for that, it dies once it is done: before or
        after its answer leaves.
        """
        if not passage.death:
            return node.answer(message)
        machine = node.machine
        step = machine.disk_steps + passage.death
        machine.deaths_at_disk[step] = partial(node.die_at_work, passage.restart)
        reply = node.answer(message)
        if machine.deaths_at_disk.pop(step, None) is not None:
            node.die_at_work(passage.restart)
            if passage.death % 2:
                raise Killed(here=True)
        return reply

    def _altered(self, node: Node, reply: Any, way: str) -> Any:
        """An altered reply of a node. Other numbers of samples in a roll call are believed, so that it is not known.

        Before a state is saved, a roll call says the truth: it is what the federation is.
        """
        if way == "samples" and reply.metadata.message_type == ROLL_CALL:
            if not self._told.saved:
                return reply
            self.lied = True
            node.unknown = True
        return altered(reply, way)

    def _send_back(self, node: Node, reply: Any, passage: Passage, arrived: Callable[[Any], None]) -> None:
        if not passage.replies:
            return
        if passage.alteration:
            reply = self._altered(node, reply, passage.alteration)
        delay = self._chance.uniform(0.01, 3.0)
        first, *others = passage.replies
        self.world.after(delay + first, partial(arrived, reply))
        for late in others:
            self.world.after(delay + late, partial(arrived, copy.deepcopy(reply)))
        if passage.old_reply and self._old_replies:
            self.world.after(delay, partial(arrived, self._chance.choice(self._old_replies)))
        self._old_replies = [*self._old_replies[-9:], reply]


def _clients(message: Any) -> list[int]:
    """The clients of a request."""
    clients: list[int] = json.loads(message.content[REQUEST]["numbers"])["ids"]
    return clients


@dataclass
class Sent:
    """A request that was sent, its passage and when; the answers that came and are not read, and when the first came.

    It is `over` once it was answered, by its node or by Flower in its place.
    """

    message: Any
    passage: Passage
    moment: float
    answers: list[Any] = field(default_factory=list)
    came: float = inf
    over: bool = False

    @property
    def trains(self) -> bool:
        """Whether it is a request to train."""
        return bool(self.message.metadata.message_type == ACTIONS["train"])


class BottleGrid:
    """Flower's grid of one server's process. Each look at it takes a moment, in which others go on."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self.network = network
        self.machine = machine
        self.run = None
        self._numbers = count(1)
        self._upsets = machine.upsets
        self._sent: dict[str, Sent] = {}
        self._looks: deque[float] = deque(maxlen=LOOKS)

    @property
    def kinds(self) -> set[str]:
        """The types of the messages that were sent, beside those of a roll call."""
        return {sent.message.metadata.message_type for sent in self._sent.values()} - {ROLL_CALL}

    def get_node_ids(self) -> list[int]:
        """The nodes that the network takes to be there."""
        self._pass()
        return self.network.online()

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Send messages; returns their ids."""
        ids = []
        missing = False
        for message in messages:
            self._pass()
            name = f"{self.machine.process}-{next(self._numbers)}"
            message.metadata.__dict__.update(_run_id=1, _src_node_id=1, _message_id=name)
            passage = self.network.send(message, self._arrived)
            sent = Sent(message, passage, self.network.world.now)
            self._sent[name] = sent
            if sent.trains:
                self.network.note_sent(message)
            if passage.stored:
                ids.append(name)
            else:
                missing = True
                ids.append("")
        if missing and self.machine.chance.random() < 0.5:
            return [name for name in ids if name]  # as other grids of Flower do
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The answers that are there, of nodes and of Flower itself."""
        self._pass()
        self._check_pause()
        answers: list[Any] = []
        for name in message_ids:
            if name in self._sent:  # Flower's own strategies ask for what was not stored, too
                answers += self._pulled(name, self._sent[name])
        return answers

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Send messages, and wait for their answers, at most as long as `timeout`."""
        waiting = set(self.push_messages(messages))
        world = self.network.world
        end = world.now + (3600.0 if timeout is None else timeout)
        answers: list[Any] = []
        while waiting and world.now < end:
            arrived = self.pull_messages(sorted(waiting))
            answers += arrived
            waiting -= {answer.metadata.reply_to_message_id for answer in arrived}
            world.wait(1.0)
        return answers

    def unheard(self, deadline: float) -> list[str]:
        """The requests to train that were answered within so many seconds, and whose answers nobody has pulled.

        None if the server was paused or its clock has jumped, or if its process has ended before it had to pull them.
        """
        now = self.network.world.now
        if self.machine.upsets != self._upsets:
            return []
        names = []
        for name, sent in self._sent.items():
            until = sent.moment + deadline
            if sent.trains and not sent.over and sent.came <= until and now > until + 2:
                names.append(name)
        return names

    def _pulled(self, name: str, sent: Sent) -> list[Any]:
        """The answers to a request: in this order, Flower's if it has expired, or its node is not there; the node's."""
        world = self.network.world
        if sent.over or world.now >= sent.passage.until:
            answers = [Message(MESSAGE_UNAVAILABLE, reply_to=sent.message)]
        elif sent.message.metadata.dst_node_id not in self.network.online():
            answers = [Message(NODE_UNAVAILABLE, reply_to=sent.message)]
            sent.passage.until = world.now  # no node receives it any more
        elif sent.answers:
            answers = sent.answers
            self.network.note_read(name)
            if sent.trains or sent.message.metadata.message_type == ACTIONS["probe"]:
                self.network.note_answered(sent.message, answers[0])
        else:
            return []
        sent.over = True
        return answers

    def _check_pause(self) -> None:
        """A server that waits for answers must pause: many looks at once keep its processor busy."""
        now = self.network.world.now
        self._looks.append(now)
        if len(self._looks) == LOOKS and now - self._looks[0] < 1.0:
            self.network.note_busy()

    def _pass(self) -> None:
        self.machine.step()
        self.network.world.wait(1e-3)
        self.machine.step()

    def _arrived(self, answer: Any) -> None:
        sent = self._sent.get(answer.metadata.reply_to_message_id)
        if sent is None:  # it is an old reply, to another process of the server
            return
        sent.came = min(sent.came, self.network.world.now)
        sent.answers.append(answer)
