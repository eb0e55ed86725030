"""The nodes in the bottle, each with a real ClientApp on a machine of its own, and the network to them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto

from fedsash.flower.nodes.wire import ACTIONS, ROLL_CALL

from .altered import WAYS, altered
from .disk import Content
from .faults import Fault
from .machine import Machine
from .world import Killed, World


def node_id(number: int) -> int:
    """The first id of a node in the network; the ids are not in the order of the numbers."""
    return 100 - 7 * number


class Node:
    """A node: a machine, the app that its process runs, and its id in the network."""

    def __init__(self, number: int, machine: Machine, new_app: Callable[[int, Machine], Any]) -> None:
        self.number = number
        self.id = node_id(number)
        self.machine = machine
        self.seen = False
        self.paused_until = 0.0
        self.lies = False
        self.disks: list[Content] = []
        self._new_app = new_app
        self._app: Any = None
        self._state = RecordDict()

    def start(self) -> None:
        """Start its process."""
        self.machine.start()
        self._app = self._new_app(self.number, self.machine)
        self._state = RecordDict()
        self.seen = True

    def start_again(self) -> None:
        """Start its process, unless it runs."""
        if not self.machine.alive:
            self.machine.world.tell(f"{self.machine.name} is started again")
            self.start()

    def be_missed(self) -> None:
        """Let the network notice that it has gone."""
        self.seen = self.machine.alive

    def be_honest(self) -> None:
        """Lie no more."""
        self.lies = False

    def answer(self, message: Any) -> Any:
        """Its answer to a message. Raises `Killed` if its process dies."""
        context = Context(1, self.id, {"partition-id": self.number}, self._state, {})
        with self.machine.at_work():
            try:
                return self._app(message, context)
            except Exception as error:  # as Flower's own process of a ClientApp does
                return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)


class Network:
    """Carries messages between servers and nodes; all that goes wrong on the way is a fault by the message's number.

    `begun` says whether a state was saved, and `lied` whether a node has lied about its samples in a roll call.
    """

    def __init__(self, world: World, nodes: list[Node], faults: Iterable[Fault], chance: Random) -> None:
        self.world = world
        self.nodes = nodes
        self.chance = chance
        self.faults: dict[int, list[Fault]] = {}
        for fault in faults:
            self.faults.setdefault(int(fault.at), []).append(fault)
        self._following = 0
        self.old_replies: list[Any] = []
        self.begun = False
        self.lied = False

    def with_id(self, number: int) -> Node | None:
        """The node that has an id now."""
        for node in self.nodes:
            if node.id == number:
                return node
        return None

    def stores(self, message: Any) -> bool:
        """Whether the network takes the next request; one that it does not take is lost, and its sender knows."""
        number = self._following
        for fault in self.faults.get(number, ()):
            if fault.what == "the request is not stored":
                self.world.tell(f"request {number}: {fault.what}")
                self._following += 1
                return False
        return True

    def send(self, message: Any, arrived: Callable[[Any], None]) -> None:
        """Send a request to its node; `arrived` is called with each answer that comes back."""
        number = self._following
        self._following += 1
        faults = {fault.what: fault for fault in self.faults.get(number, ())}
        node = self.with_id(message.metadata.dst_node_id)
        for fault in faults.values():
            self.world.tell(f"request {number} to node {node.number if node else '?'}: {fault.what}")
        if "the request is lost" in faults or node is None:
            return
        delay = self.chance.uniform(0.01, 0.5)
        if "the request is late" in faults:
            delay += faults["the request is late"].amount
        content = message_to_proto(message)
        deliver = partial(self._deliver, node.id, content, faults, arrived)
        self.world.after(delay, deliver)
        if "the request comes twice" in faults:
            self.world.after(delay + faults["the request comes twice"].amount, deliver)

    def _deliver(self, number: int, content: Any, faults: dict[str, Fault], arrived: Callable[[Any], None]) -> None:
        """Let the node with this id answer, as soon as it can; without such a node the request is lost."""
        node = self.with_id(number)
        if node is None:
            return
        again = partial(self._deliver, number, content, faults, arrived)
        if not node.machine.alive:
            self.world.after(1.0, again)
            return
        if node.paused_until > self.world.now:
            self.world.after(node.paused_until - self.world.now, again)
            return
        message = message_from_proto(content)
        message.metadata.__dict__.update(_message_id=content.metadata.message_id)
        if "the training fails" in faults:
            reply = Message(Error(2, "the node has failed"), reply_to=message)
        else:
            if "the node dies in it" in faults:
                variant = int(faults["the node dies in it"].amount)
                step = node.machine.disk_steps + 1 + variant % 12
                node.machine.deaths_at_disk[step] = partial(self._dies, node, variant)
            try:
                reply = node.answer(message)
            except Killed:
                return
        if node.lies:
            reply = self._altered(reply, "samples")
        self._send_back(reply, faults, arrived)

    def _dies(self, node: Node, variant: int) -> None:
        node.machine.die("dies at work")
        self.world.after(5.0 + variant, node.start_again)

    def _altered(self, reply: Any, way: str) -> Any:
        """An altered reply. Before a state is saved, a roll call says the truth: it is what the federation is."""
        in_roll_call = reply.metadata.message_type == ROLL_CALL
        if way == "samples" and in_roll_call and not self.begun:
            return reply
        self.lied = self.lied or (way == "samples" and in_roll_call)
        return altered(reply, way)

    def _send_back(self, reply: Any, faults: dict[str, Fault], arrived: Callable[[Any], None]) -> None:
        if "the reply is lost" in faults:
            return
        if "the reply is altered" in faults:
            variant = int(faults["the reply is altered"].amount)
            reply = self._altered(reply, WAYS[variant % len(WAYS)])
        delay = self.chance.uniform(0.01, 3.0)
        if "the reply is late" in faults:
            delay += faults["the reply is late"].amount
        self.world.after(delay, partial(arrived, reply))
        if "the reply comes twice" in faults:
            later = delay + faults["the reply comes twice"].amount
            self.world.after(later, partial(arrived, copy.deepcopy(reply)))
        if "an old reply comes again" in faults and self.old_replies:
            self.world.after(delay, partial(arrived, self.chance.choice(self.old_replies)))
        self.old_replies = [*self.old_replies[-9:], reply]


class BottleGrid:
    """Flower's grid of one server's process. Each look at it takes a moment, in which others go on."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self.network = network
        self.machine = machine
        self.run = None
        self._answers: dict[str, list[Any]] = {}
        self._numbers = count(1)
        self._jump = machine.jump
        self._sent: dict[str, float] = {}
        self._came: dict[str, float] = {}
        self._pulled: set[str] = set()

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
            if not self.network.stores(message):
                missing = True
                ids.append("")
                continue
            self.network.send(message, self._arrived)
            ids.append(name)
        if missing and self.machine.chance.random() < 0.5:
            return [name for name in ids if name]  # as other grids of Flower do
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The answers that are there."""
        self._pass()
        answers: list[Any] = []
        for name in message_ids:
            if name in self._answers:
                answers += self._answers.pop(name)
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

    def _pass(self) -> None:
        self.machine.step()
        self.network.world.wait(1e-3)
        self.machine.step()

    def _arrived(self, answer: Any) -> None:
        name = answer.metadata.reply_to_message_id
        self._came.setdefault(name, self.network.world.now)
        self._answers.setdefault(name, []).append(answer)
