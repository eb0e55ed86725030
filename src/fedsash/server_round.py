"""The server half of a round: who is asked, what they receive, and what becomes of their updates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .aggregation import Aggregation
from .aggregation.uploads import Uploads
from .averages import Observers
from .basics.arrays import Ints, Vectors
from .basics.sharing import Sharing
from .broadcast import Broadcaster
from .exchange import Request, RoundReport
from .executors.clients import Clients, LazyExecutor
from .executors.devices import threads
from .methods import RoundMean, WholeMethod
from .sampling import Sampling
from .servers import Server
from .state import State


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerRound:
    """Makes the rounds of a federation, whose parts are its fields: `one_round(state)` gives the next state.

    `pieces` says in how many pieces a round is summed. Without a `broadcaster` clients receive the model.
    """

    clients: Clients
    sampling: Sampling
    seed: int
    method: WholeMethod
    sharing: Sharing
    aggregation: Aggregation
    server: Server
    broadcaster: Broadcaster | None
    observers: Observers
    pieces: int
    executor: LazyExecutor

    def one_round(self, state: State) -> tuple[State, RoundReport]:
        """The state after the next round, and the report of it. The given state is used up."""
        # 1. Choose the clients, and send them the model, or an average in its place.
        request = self.ask(state)

        # 2. A method with a probe asks them first. Only who answers usably goes on, with the means of these answers.
        probed = None
        if request.job == "probe":
            probed = self.collect(request)
            request = self.ask(state, probed=probed)

        # 3. They train. A lost answer is noted, an update that is not finite or too long is refused, and the others are
        #    added up in the order of the request, whoever comes first.
        with threads(self.executor.current.server_threads):
            uploads = self.collect(request)
            return self.step(state, request, uploads, probed)

    def step(
        self, state: State, request: Request, uploads: Uploads, probed: Uploads | None = None
    ) -> tuple[State, RoundReport]:
        """The state after a round, from its request and its uploads; the second half of `one_round`."""
        # 4. Without enough updates the model stays: only the round's number changes.
        report = uploads.report(request.round + 1, probed, self.executor.current.minimum)
        if report.skipped:
            return replace(state, round=state.round + 1), report

        # 5. The rule releases the mean of the updates; a private one, whose updates are clipped, adds its noise here.
        collector = uploads.collector
        accepted = len(collector.accepted)
        common = self.sharing.common_of(request.sent)
        mean, memory = self.aggregation.release(
            uploads.mean(), clients=accepted, memory=state.aggregation, like=common, round=request.round, seed=self.seed
        )

        # 6. The method turns the mean into the round's update, and moves what it remembers itself.
        probes = {} if probed is None else probed.mean()
        received = RoundMean(
            sent=common,
            update=uploads.update(mean),
            mean=mean,
            server_state=state.server_state | probes,
            clients=accepted,
            total=len(self.clients.sizes),
        )
        update, server_state = self.method.server_update(received, state.server_state)

        # 7. The server optimiser moves the model from what was sent. A broadcast that acts before it puts an average of
        #    the clients' means into the update's place.
        state.spent = True
        if self.broadcaster is None:
            w, optimiser = self.server.step(request.sent, update, state.optimiser)
        else:
            w, optimiser = self.broadcaster.step(
                self.server, state.optimiser, state, request.sent, update, request.round
            )
        if not math.isfinite(float(torch.linalg.vector_norm(w))):
            skipped = replace(report, skipped="the server's step was not finite")
            return replace(state, round=state.round + 1), skipped

        # 8. Clients whose update counts have a new state.
        answers = [(request.ids[places], answer) for places, answer in collector.client_state]
        state.clients.accept(collector.accepted_ids, answers, request.round + 1)

        # 9. Every average observes the new model.
        after = self.observe(state, w, optimiser=optimiser, server_state=server_state, aggregation=memory)
        return after, report

    def ask(self, state: State, *, ids: Ints | None = None, probed: Uploads | None = None) -> Request:
        """The request to the clients of the next round; it is empty if no client takes part.

        A method with a probe makes two requests. The first is the probe, with the model alone. The second goes to who
        gave a usable answer, and contains the means of `probed`. With `ids` `[s]` the round has these clients.
        """
        probes = probed is None and "probe" in self.method.method.overridden
        sent, server_state = self.send(state)
        if probed is not None:
            ids = probed.collector.accepted_ids
            server_state = server_state | probed.mean()
        elif ids is None:
            ids = self.sampling.clients(state.round, self.clients.sizes, self.seed)
        return Request(
            job="probe" if probes else "train",
            round=state.round,
            ids=ids,
            sent=sent,
            server_state={} if probes else server_state,
            clients=state.recall(ids),
            aggregation=state.aggregation,
        )

    def send(self, state: State) -> tuple[Tensor, Vectors]:
        """The model `[D]` that the clients of the next round receive, and the method's vectors."""
        w = state.w
        if self.broadcaster is not None:
            w = self.broadcaster.sent(state, w, state.round, state.choice)
        return self.method.send(w, state.server_state, state.round)

    def collect(self, request: Request) -> Uploads:
        """Let the executor answer a request, and sum up the answers."""
        uploads = Uploads.of(request, self.aggregation, self.method.method, self.clients.sizes, self.pieces)
        if len(request.ids):
            uploads.take_all(self.executor.running.work(request))
        return uploads

    def observe(self, state: State, w: Tensor, **others: Any) -> State:
        """The state with `w` `[D]` as the next global model, after every average has observed it, and other fields."""
        state.spent = True
        self.observers.observe(state, w, state.round + 1)
        return replace(state, round=state.round + 1, w=w, **others)
