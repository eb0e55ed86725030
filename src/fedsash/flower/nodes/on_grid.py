"""The server half: clients on the nodes of a Flower federation, and the executor that reaches them over a `Grid`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...client.messages import SCORES, Answers, Executor, Missing, Reply, Request, in_order, largest_norms
from ...client.store import StateVersions
from ...data.federated import FederatedData, Problem
from ...engines import Engine, Training, state_like, upload_like
from ...engines.clients import check_set_aside
from ...evaluation import Evaluation
from ...settings.errors import check, shortened
from ...settings.fingerprint import text
from ...settings.limits import Count
from ...settings.setting import Setting
from ...vector.arrays import Ints, Vectors
from ...vector.spaces import ClientState, Uploaded
from . import wire
from .roll_call import RollCall, Roster, Waiting, pulled, pushed
from .scores import agreed, checked
from .settings import NamedModel, checksum, encoded

PRECISION = "must be full: each node has an engine of its own, which client_app is given"
"""How the precision of a federation over nodes must be, since it would change nothing there."""


@dataclass(frozen=True, eq=False)
class FlowerClients(Setting):
    """Clients on the nodes of a Flower federation, reached over the `grid` of a ServerApp.

        model = NamedModel("mlp", {"hidden": [32]}, shape=(64,), outputs=10)
        clients = FlowerClients(grid, problem, 100, model)
        federation = Federation(model.build(), clients, method=Scaffold(), averages={"wima": Window(100)})

    The nodes say in a roll call which of the clients they hold, when this object is made. Raises `RunError` if a client
    has no node in time. A federation with another evaluation or seed refuses them.
    """

    grid: Any
    """the `grid` of a ServerApp"""
    problem: Problem
    """what is learned, with the server's test set"""
    count: Count
    """how many clients there are"""
    model: NamedModel | None = None
    """the model by name, for the nodes; left out: they need one of their own"""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """the federation's evaluation, by which nodes set samples aside"""
    seed: int = 0
    """the federation's seed, by which nodes set samples aside"""
    waiting: Waiting = field(default_factory=Waiting)
    """how long the server waits for nodes, and for how many"""
    remember: bool = True
    """whether clients keep their own state on their node, by version; false: their state travels in both directions"""
    data: FederatedData | None = field(default=None, init=False)
    roll_call: RollCall = field(init=False, repr=False)

    def __post_init__(self) -> None:
        right = f"must be at most the number of clients, {self.count}"
        check(self.waiting.minimum <= self.count, "Waiting.minimum", self.waiting.minimum, right)
        own = self.evaluation
        asked = {"held_out": own.held_out, "client_test": own.client_test, "seed": self.seed}
        object.__setattr__(self, "roll_call", RollCall(self.grid, Roster(self.count), self.waiting, asked))
        self.roll_call.wait()

    @property
    def sizes(self) -> Ints:
        return self.roll_call.roster.counts["sizes"]

    @property
    def held(self) -> bool:
        return bool(self.roll_call.roster.counts["held"].any())

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        right = "must be the federation's, {}: give it to FlowerClients, too, since nodes set their samples aside by it"
        check_set_aside("FlowerClients", self, evaluation, seed, right)
        check(engine.precision == "full", "engine.precision", engine.precision, PRECISION)

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        nodes = len(set(self.roll_call.roster.nodes.values()))
        return OnGrid(self, training), [f"{self.count} clients on {nodes} nodes of Flower"]

    def settled(self, began: Mapping[str, Any]) -> FlowerClients:
        return self

    def fingerprint(self, training: Training) -> dict[str, str]:
        return {"clients": f"{self.count} on nodes, with samples {text(self.sizes)}"}


class OnGrid(Executor):
    """Lets the clients of a request answer on their nodes, each node in one message for all its clients.

    Replies are given on in the round's order, one client each. Who does not answer in time, fails, or sends what can't
    be used is missing, with the reason.
    """

    def __init__(self, clients: FlowerClients, training: Training) -> None:
        self.grid = clients.grid
        self.roll_call = clients.roll_call
        self._training = training
        self.waiting = clients.waiting
        self.minimum = clients.waiting.minimum
        self._settings = encoded(training, clients.model, clients.evaluation)
        self._fingerprint = checksum(training)

    def work(self, request: Request) -> Answers:
        answers = self._answers(request)
        yield from in_order(agreed(answers) if request.job in SCORES else answers)

    def _answers(self, request: Request) -> Iterator[Reply | Missing]:
        """The answers as they come: one reply for each client, and who is missing. Each place is answered once."""
        pending: dict[str, Ints] = {}
        for message, places in self.push(request):
            if isinstance(message, Missing):
                yield message
            else:
                pending[message] = places
        until = time.monotonic() + self.waiting.deadline
        over = False
        while pending and not over:
            over = time.monotonic() >= until  # what lies there at the deadline is in time
            for answer, places in pulled(self.grid, pending):
                yield from self.read(request, places, answer)
            if pending and not over:
                time.sleep(min(self.waiting.poll, max(until - time.monotonic(), 0)))
        for places in pending.values():
            yield Missing(places, f"late: no answer within {self.waiting.deadline:g} s")

    def push(self, request: Request) -> Iterator[tuple[str | Missing, Ints]]:
        """Send one message to each node of a request; gives its id, or why it was not sent, and its places."""
        from flwr.app import Message

        live = self.roll_call.look()
        owners = self.roll_call.roster.nodes
        messages = []
        of_node: dict[int, list[int]] = {}
        for place, client in enumerate(request.ids.tolist()):
            of_node.setdefault(owners[client], []).append(place)
        there: list[Ints] = []
        model = wire.packed({"w": request.sent})
        server = wire.packed(request.server_state)
        for node, places in ((node, np.array(own)) for node, own in of_node.items()):
            if node not in live:
                yield Missing(places, "away: its node has left"), places
                continue
            content = wire.asked(request.only(places), model, server, self._settings)
            kind = wire.ACTIONS[request.job]
            group = str(request.round + 1)
            messages.append(Message(content, node, kind, ttl=self.waiting.lifetime, group_id=group))
            there.append(places)
        for message, places in zip(pushed(self.grid, messages), there, strict=True):
            yield message or Missing(places, "lost: the message could not be sent"), places

    def read(self, request: Request, places: Ints, message: Any) -> Iterator[Reply | Missing]:
        """The replies in a message, or its clients as missing: whatever a node sends must not end the run."""
        try:
            said = wire.said(message)
            if said.get("fingerprint") != self._fingerprint:
                raise wire.WireError("failed: it trains another model, or with other settings")
            known = self.roll_call.roster.counts["sizes"][request.ids[places]].tolist()
            if list(said["sizes"]) != known:  # a node with a key has its id again when it was started again
                raise wire.WireError(f"failed: it has {said['sizes']} samples instead of {known}")
            without = dict(zip(said.get("without", ()), said.get("why", ()), strict=True))
            if not all(type(i) is int and 0 <= i < len(places) for i in without):
                raise wire.WireError(f"failed: it has no clients at the places {list(without)}")
            answering = np.array([i for i in range(len(places)) if i not in without], dtype=np.int64)
            replies = list(self._replies(request, places[answering], message.content)) if len(answering) else []
            yield from (Missing(places[[i]], _of_a_node(f"failed: {why}")) for i, why in without.items())
            yield from replies
        except Exception as error:  # of any class: records may hold anything
            why = str(error) if isinstance(error, wire.WireError) else f"failed: {error}"
            yield Missing(places, _of_a_node(why))

    def _replies(self, request: Request, places: Ints, content: Any) -> Iterator[Reply]:
        asked = request.only(places)
        training = self._training
        device = request.sent.device
        if request.job in SCORES:
            uploads = checked(wire.unpacked(content[wire.UPLOAD]), training, asked, self.roll_call.roster.counts)
        else:
            right = _forms_of_uploads(training, request, len(places))
            uploads = wire.unpacked(content[wire.UPLOAD], right, device)
        own = wire.unpacked(content[wire.CLIENTS], _forms_of_states(training, asked, len(places)), device)
        for row, place in enumerate(places.tolist()):
            upload = Uploaded({name: value[row : row + 1] for name, value in uploads.items()})
            kept = ClientState({name: value[row : row + 1] for name, value in own.items()})
            one = request.only(np.array([place]))
            effort = training.effort(one, self.roll_call.roster.counts["sizes"][one.ids])
            yield Reply(
                places=np.array([place]),
                upload=upload,
                client_state=kept,
                norms=largest_norms(upload, kept, 1),
                effort=effort,
            )


def _of_a_node(text: str) -> str:
    """What a node says, which may hold whatever it likes, in one short line."""
    return shortened(" ".join(text.split()), 300)


def _forms_of_uploads(training: Training, request: Request, clients: int) -> wire.Forms:
    """The forms of the uploads `[clients, ...]` to a request to train, or to a probe, as the method has them.

    So no reply of a client decides what is right.
    """
    return _rows(upload_like(training, request), clients)


def _forms_of_states(training: Training, request: Request, clients: int) -> wire.Forms:
    """The forms of the clients' new state `[clients, ...]`, if it travels."""
    if request.job != "train" or isinstance(request.clients, StateVersions):
        return {}
    return _rows(state_like(training, request), clients)


def _rows(vectors: Vectors, clients: int) -> wire.Forms:
    return {name: wire.Form((clients, *value.shape[1:]), value.dtype) for name, value in vectors.items()}
