"""The network of the bottle: nodes, and the messages between them and the processes of a server."""

from __future__ import annotations

import copy
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
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
from .node import Node
from .passage import Passage
from .told import ASKED_AGAIN, DEADLINE, Told
from .world import Killed, World

FOLLOWS = 2 * DEADLINE
"""For so many seconds something may follow from what befell a request, and again once its answer is read: a server that
trains at any time reads it late if it evaluates meanwhile, and waits for each node that does not answer."""
LOOKS = 50
"""A server does not look for answers so often in a second."""


class Network:
    """Carries messages between servers and nodes; all that goes wrong on the way is a fault by the request's number.

    `lied` says whether a node has lied about its samples in a roll call. The machines of nodes are in `folder`, and
    `chance` gives each of them its own.
    """

    def __init__(
        self,
        world: World,
        told: Told,
        folder: Path,
        new_app: Callable[[Node], Any],
        chance: Callable[[str], Random],
    ) -> None:
        self.world = world
        self.nodes: list[Node] = []
        self.faults: dict[int, list[Fault]] = defaultdict(list)
        self.lied = False
        self._told = told
        self._folder = folder
        self._new_app = new_app
        self._new_chance = chance
        self._chance = chance("network")
        self._numbers = count()
        self._befell: dict[str, list[tuple[int, Kind]]] = defaultdict(list)
        self._old_replies: list[Any] = []

    def join(self, number: int, name: str) -> Node:
        """Let a node with this number join, with the clients of this number."""
        machine = Machine(self.world, name, self._folder / name, self._new_chance(name))
        node = Node(number, machine, self._new_app, partial(self._join_as_twin, number))
        self.nodes.append(node)
        return node

    def _join_as_twin(self, number: int) -> None:
        if self.deserted:
            return
        place = len(self.nodes)
        twin = self.join(number, f"twin {place} of node {number}")
        twin.id += 500 * place

    def server_starts(self) -> None:
        """Let no node be unknown for what happened to the roll call of an earlier process of the server."""
        for node in self.nodes:
            node.begin_roll_call()

    def disturb(self) -> None:
        """Let it count as if something had befallen each node now."""
        for node in self.nodes:
            node.disturb()

    def calm_for(self, number: int) -> float:
        """For how many seconds the node of this number, and each twin of it, has been live and undisturbed."""
        return self.world.now - max(node.calm_since for node in self.nodes if node.number == number)

    @property
    def deserted(self) -> bool:
        """Whether all nodes have gone for good."""
        return all(node.gone for node in self.nodes)

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

    def note_answered(self, message: Any, answer: Any) -> None:
        """Note the answer to a request to train of the run that its server reads."""
        if REQUEST in message.content:
            round = int(message.metadata.group_id)
            for client in json.loads(message.content[REQUEST]["numbers"])["ids"]:
                self._told.answered[client, round] = message, answer
                self._told.heard[client] = self.world.now

    def note_busy(self) -> None:
        """Note that the server looks for answers without a pause."""
        if not self._told.violations:
            self._told.violation(f"the server looks for answers {LOOKS} times in a second")

    def note_read(self, name: str) -> None:
        """Note that the answer to a request is read, from which something follows for its node if a fault befell it."""
        for node, kind in self._befell.get(name, ()):
            self._told.befallen(node, kind, FOLLOWS)

    def send(self, message: Any, arrived: Callable[[Any], None]) -> bool:
        """Send a request to its node; `arrived` is called with each answer that comes back.

        Returns whether the network takes it; one that it does not take is lost, and its sender knows.
        """
        number = next(self._numbers)
        node = self.with_id(message.metadata.dst_node_id)
        passage = Passage()
        for fault in self.faults[number]:
            self.world.tell(f"request {number} to node {node.number if node else '?'}: {fault.kind.words}")
            fault.befall(passage)
            if node is not None:
                self._note_befallen(node, message, fault)
        if node is not None and message.metadata.message_type == ROLL_CALL and passage.fails_roll_call:
            node.fail_roll_call()
        if node is not None and passage.stored:
            content = message_to_proto(message)
            delay = self._chance.uniform(0.01, 0.5)
            for late in passage.requests:
                self.world.after(delay + late, partial(self._deliver, node.id, content, passage, arrived))
        return passage.stored

    def _note_befallen(self, node: Node, message: Any, fault: Fault) -> None:
        """Note that a fault befalls a request to a node, which is asked again if it is a question of a roll call."""
        self._told.befallen(node.number, fault.kind, FOLLOWS)
        self._befell[message.metadata.message_id].append((node.number, fault.kind))
        seconds = fault.amount
        if message.metadata.message_type == ROLL_CALL:
            seconds = ASKED_AGAIN
        node.disturb(seconds)

    def _deliver(self, number: int, content: Any, passage: Passage, arrived: Callable[[Any], None]) -> None:
        """Let the node with this id answer, as soon as it can; without such a node the request is lost."""
        node = self.with_id(number)
        if node is None:
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
            if passage.death:
                step = node.machine.disk_steps + passage.death
                node.machine.deaths_at_disk[step] = partial(self._dies, node, passage.restart)
            reply = node.answer(message)
        if node.lies:
            reply = self._altered(node, reply, "samples")
        return reply

    def _dies(self, node: Node, seconds: float) -> None:
        node.machine.die("dies at work")
        self.world.after(seconds, node.start_again)

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


class BottleGrid:
    """Flower's grid of one server's process. Each look at it takes a moment, in which others go on."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self.network = network
        self.machine = machine
        self.run = None
        self._answers: dict[str, list[Any]] = {}
        self._numbers = count(1)
        self._jump = machine.jump
        self._requests: dict[str, Any] = {}
        self._sent: dict[str, float] = {}
        self._came: dict[str, float] = {}
        self._pulled: set[str] = set()
        self._looks: deque[float] = deque(maxlen=LOOKS)

    def get_node_ids(self) -> list[int]:
        """The nodes that the network takes to be there."""
        self._pass()
        return [node.id for node in self.network.nodes if node.seen]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Send messages; returns their ids."""
        ids = []
        missing = False
        for message in messages:
            self._pass()
            name = f"{self.machine.process}-{next(self._numbers)}"
            message.metadata.__dict__.update(_run_id=1, _src_node_id=1, _message_id=name)
            if message.metadata.message_type == ACTIONS["train"]:
                self._sent[name] = self.network.world.now
                self._requests[name] = message
                self.network.note_sent(message)
            if self.network.send(message, self._arrived):
                ids.append(name)
            else:
                missing = True
                ids.append("")
        if missing and self.machine.chance.random() < 0.5:
            return [name for name in ids if name]  # as other grids of Flower do
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The answers that are there."""
        self._pass()
        self._check_pause()
        answers: list[Any] = []
        for name in message_ids:
            if name in self._answers:
                arrived = self._answers.pop(name)
                self.network.note_read(name)
                if name in self._requests and name not in self._pulled:
                    self.network.note_answered(self._requests[name], arrived[0])
                answers += arrived
                self._pulled.add(name)
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

        None if the server's clock has jumped, or if its process has ended before it had to pull them.
        """
        now = self.network.world.now
        if self.machine.jump != self._jump:
            return []
        names = []
        for name, sent in self._sent.items():
            in_time = self._came.get(name, inf) <= sent + deadline
            if in_time and name not in self._pulled and now > sent + deadline + 2:
                names.append(name)
        return names

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
        name = answer.metadata.reply_to_message_id
        self._came.setdefault(name, self.network.world.now)
        self._answers.setdefault(name, []).append(answer)
