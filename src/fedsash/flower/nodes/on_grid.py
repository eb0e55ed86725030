"""The server half: clients on the nodes of a Flower federation, and the executor that reaches them over a `Grid`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...client.messages import SCORES, Answers, Executor, Missing, Reply, Request, in_order, largest_norms
from ...client.store import StateVersions
from ...data.federated import FederatedData, Problem
from ...engines import Engine, Training, state_like, upload_like
from ...engines.clients import check_set_aside
from ...evaluation import Evaluation
from ...settings.errors import RunError, check, shortened
from ...settings.fingerprint import text
from ...settings.limits import Count
from ...settings.setting import Setting
from ...system.host import host
from ...vector.arrays import Ints, Vectors
from ...vector.spaces import ClientState, Uploaded
from . import wire
from .roll_call import RollCall, Roster, Waiting, pulled, pushed
from .scores import checked_scores, consistent
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
        requirement = f"must be at most the number of clients, {self.count}"
        check(self.waiting.minimum <= self.count, "Waiting.minimum", self.waiting.minimum, requirement)
        asked = {
            "held_out": self.evaluation.held_out,
            "client_test": self.evaluation.client_test,
            "seed": self.seed,
        }
        object.__setattr__(self, "roll_call", RollCall(self.grid, Roster(self.count), self.waiting, asked))
        self.roll_call.wait()

    @property
    def sizes(self) -> Ints:
        return self.roll_call.roster.counts["sizes"]

    @property
    def held(self) -> bool:
        return bool(self.roll_call.roster.counts["held"].any())

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        requirement = (
            "must be the federation's, {}: give it to FlowerClients, too, since nodes set their samples aside by it"
        )
        check_set_aside("FlowerClients", self, evaluation, seed, requirement)
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

    Replies are in the round's order, one client each. A client that does not answer in time, fails, or sends what can't
    be used is `Missing`, with the reason.
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
        self._await_clients()
        answers: Iterable[Reply | Missing] = self._answers(request)
        if request.job in SCORES:
            answers = consistent(answers)
        yield from in_order(answers)

    def _await_clients(self) -> None:
        """Wait until the clients that are there suffice for a round: otherwise those left would be skipped in no time.

        Raises `RunError` if that takes longer than a roll call.
        """
        until = host.clock.now() + self.waiting.roll_call
        while (present := self._present()) < self.minimum:
            if host.clock.now() >= until:
                reason = f"for {self.waiting.roll_call:g} s the nodes of {present} clients were there"
                raise RunError(f"{reason}, and a round needs {self.minimum}: resume the run when nodes are back")
            host.clock.sleep(self.waiting.poll)

    def _present(self) -> int:
        """How many clients have a node that is live."""
        live = self.roll_call.look()
        return sum(node in live for node in self.roll_call.roster.nodes.values())

    def _answers(self, request: Request) -> Iterator[Reply | Missing]:
        """The answers as they come: one reply for each client, or `Missing`. Each place is answered once."""
        pending: dict[str, Ints] = {}
        for message, places in self.push(request):
            if isinstance(message, Missing):
                yield message
            else:
                pending[message] = places
        until = host.clock.now() + self.waiting.deadline
        over = False
        while pending and not over:
            over = host.clock.now() >= until  # an answer that has arrived by the deadline is in time
            for answer, places in pulled(self.grid, pending):
                yield from self.read(request, places, answer)
            if pending and not over:
                host.clock.sleep(min(self.waiting.poll, max(until - host.clock.now(), 0)))
        for places in pending.values():
            yield Missing(places, f"late: no answer within {self.waiting.deadline:g} s")

    def push(self, request: Request) -> Iterator[tuple[str | Missing, Ints]]:
        """Send one message to each node of a request; gives its id, or why it was not sent, and its places."""
        from flwr.app import Message

        live = self.roll_call.look()
        owners = self.roll_call.roster.nodes
        places_by_node: dict[int, list[int]] = {}
        for place, client in enumerate(request.ids.tolist()):
            places_by_node.setdefault(owners[client], []).append(place)
        messages = []
        places_by_message: list[Ints] = []
        # Packed once: all nodes receive the same model and server state.
        model = wire.packed({"w": request.sent})
        server = wire.packed(request.server_state)
        for node, node_places in places_by_node.items():
            places = np.array(node_places)
            if node not in live:
                yield Missing(places, "away: its node has left"), places
                continue
            content = wire.request_content(request.only(places), model, server, self._settings)
            kind = wire.ACTIONS[request.job]
            group = str(request.round + 1)
            messages.append(Message(content, node, kind, ttl=self.waiting.lifetime, group_id=group))
            places_by_message.append(places)
        for message_id, places in zip(pushed(self.grid, messages), places_by_message, strict=True):
            if message_id:
                yield message_id, places
            else:
                yield Missing(places, "lost: the message could not be sent"), places

    def read(self, request: Request, places: Ints, message: Any) -> Iterator[Reply | Missing]:
        """The replies in a message, or its clients as `Missing`: nothing that a node sends may end the run."""
        try:
            facts = wire.reply_facts(message)
            self._check_node(request.ids[places], facts)
            reasons = dict(zip(facts.get("without", ()), facts.get("why", ()), strict=True))
            if not all(type(i) is int and 0 <= i < len(places) for i in reasons):
                raise wire.WireError(f"failed: it has no clients at the places {list(reasons)}")
            answering = np.array([i for i in range(len(places)) if i not in reasons], dtype=np.int64)
            replies: list[Reply] = []
            if len(answering):
                replies = list(self._replies(request, places[answering], message.content))
            # Only now: after an error above, all clients of the message are missing, each once.
            for i, reason in reasons.items():
                yield Missing(places[[i]], _node_text(f"failed: {reason}"))
            yield from replies
        except Exception as error:  # of any class: records may hold anything
            reason = str(error) if isinstance(error, wire.WireError) else f"failed: {type(error).__name__}: {error}"
            yield Missing(places, _node_text(reason))

    def _check_node(self, ids: Ints, facts: Any) -> None:
        """Raise `WireError` if a node's training or its clients' data are not those that the server asked for."""
        if facts.get("fingerprint") != self._fingerprint:
            raise wire.WireError("failed: it trains another model, or with other settings")
        sizes = self.roll_call.roster.counts["sizes"][ids].tolist()
        # A node with a key gets its id again when it is started again, perhaps with other data.
        if list(facts["sizes"]) != sizes:
            raise wire.WireError(f"failed: it has {facts['sizes']} samples instead of {sizes}")

    def _replies(self, request: Request, places: Ints, content: Any) -> Iterator[Reply]:
        """One reply for each of the clients at these places of a request; the content has their rows in this order."""
        asked = request.only(places)
        training = self._training
        counts = self.roll_call.roster.counts
        device = request.sent.device
        if request.job in SCORES:
            uploads = checked_scores(wire.unpacked(wire.record_of(content, wire.UPLOAD)), training, asked, counts)
        else:
            forms = _forms_of_uploads(training, request, len(places))
            uploads = wire.unpacked(wire.record_of(content, wire.UPLOAD), forms, device)
        forms = _forms_of_states(training, asked, len(places))
        client_states = wire.unpacked(wire.record_of(content, wire.CLIENTS), forms, device)
        for row, place in enumerate(places.tolist()):
            upload = Uploaded({name: rows[row : row + 1] for name, rows in uploads.items()})
            client_state = ClientState({name: rows[row : row + 1] for name, rows in client_states.items()})
            single = request.only(np.array([place]))
            yield Reply(
                places=np.array([place]),
                upload=upload,
                client_state=client_state,
                norms=largest_norms(upload, client_state, 1),
                effort=training.effort(single, counts["sizes"][single.ids]),
            )


def _node_text(text: str) -> str:
    """A text from a node, which may hold anything, as one short line."""
    return shortened(" ".join(text.split()), 300)


def _forms_of_uploads(training: Training, request: Request, clients: int) -> wire.TensorForms:
    """The forms of the uploads `[clients, ...]` to a request to train, or to a probe, as the method has them.

    They come from the server's method alone: no client's reply decides which form is right.
    """
    return _rows(upload_like(training, request), clients)


def _forms_of_states(training: Training, request: Request, clients: int) -> wire.TensorForms:
    """The forms of the clients' new state `[clients, ...]`, if it travels."""
    if request.job != "train" or isinstance(request.clients, StateVersions):
        return {}
    return _rows(state_like(training, request), clients)


def _rows(vectors: Vectors, clients: int) -> wire.TensorForms:
    return {name: wire.TensorForm((clients, *value.shape[1:]), value.dtype) for name, value in vectors.items()}
