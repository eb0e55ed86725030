"""The server half of a round: who is asked, what they receive, and what becomes of their updates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ..averages import Observers
from ..client.messages import Job, Request, RoundReport
from ..engines.clients import Clients, LazyExecutor
from ..engines.processes import threads
from ..engines.uploads import Uploads
from ..methods import Aggregation, Method, RoundMean, check_returned
from ..methods.sampling import Sampling
from ..methods.server_optimisers import Server
from ..vector.arrays import Ints, Vectors, check_like
from ..vector.randomness import Watch, no_draws_in_hooks
from ..vector.sharing import Sharing
from ..vector.spaces import AggregationMemory, CommonPart, Download, MeanUpload, OptimiserState, ServerState, WholeModel
from .broadcast import Broadcaster
from .state import State


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerRound:
    """Makes the rounds of a federation, whose parts are its fields: `one_round(state)` gives the next state.

    `pieces` says in how many pieces a round is summed. Without a `broadcaster` clients receive the model.
    """

    clients: Clients
    sampling: Sampling
    seed: int
    method: Method
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

        # 3. They train. `Collector.hear` records a lost answer as `missing`. `Uploads.take` refuses an update that is
        #    not finite or too long. Each of the others goes through the rule's `derive`, where a private rule clips it,
        #    and is then added, always in the order of the request.
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

        # 5. The rule releases the mean of the updates, to which a private one adds its noise, and makes one update of
        #    it. Rules, methods and server optimisers see the common parameters alone, which 7 puts back in their place.
        accepted = uploads.collector.accepted
        common = self.sharing.common_of(request.sent)
        with self._no_draws["aggregation"]():
            released, memory_of_rule = self.aggregation.release(
                uploads.mean(),
                clients=len(accepted),
                memory=state.aggregation,
                like=common,
                round=request.round,
                seed=self.seed,
            )
            mean = MeanUpload(released)
            update = self.aggregation.update(mean, uploads.updates)
        check_returned(self.aggregation, "release", mean, "delta", common, memory_of_rule, state.aggregation)
        check_like(self.aggregation, "update", update, mean["delta"])

        # 6. The method turns it into the round's update, and moves what it remembers itself. The means of a probe are
        #    of this round only.
        probes: Vectors = {}
        if probed is not None:
            probes = probed.mean()
        memory_of_method = state.server_state
        received = RoundMean(
            sent=common,
            update=update,
            mean=mean,
            server_state=memory_of_method | probes,
            clients=len(accepted),
            total=len(self.clients.sizes),
        )
        with self._no_draws["method"]():
            update, returned = self.method.server_update(received)
        passed_through = probes.keys() - memory_of_method.keys()
        remembered = {name: vector for name, vector in returned.items() if name not in passed_through}
        vectors = {"the update": update}
        check_returned(self.method, "server_update", vectors, "the update", common, remembered, memory_of_method)
        server_state = ServerState({name: remembered[name] for name in memory_of_method})

        # 7. The server optimiser moves the model from what was sent. A broadcast of an order other than "after" first
        #    shows the clients' mean to its average, and once it sends this average, the change leads to it. In FedIMA's
        #    code the optimiser makes the first of these steps from a new memory, and keeps its own. What is not common
        #    moves by the change itself. From here on averages and client state change in place: the state is spent.
        state.spent = True
        change = self.sharing.model_change(CommonPart(update), mean)
        memory_of_server = state.optimiser
        steps_apart = False
        if self.broadcaster is not None:
            change = self.broadcaster.change(state, request.sent, change, request.round)
            steps_apart = self.broadcaster.steps_apart(request.round)
        if steps_apart:
            memory_of_server = OptimiserState(self.server.init(common))
        with self._no_draws["server"]():
            moved, optimiser = self.server.step(common, self.sharing.common_of(change), memory_of_server)
        check_returned(self.server, "step", {"the model": moved}, "the model", common, optimiser, memory_of_server)
        if steps_apart:
            optimiser = state.optimiser
        others = request.sent
        if not self.sharing.whole:
            others = WholeModel(others + change)
        w = self.sharing.with_common(CommonPart(moved), others)
        if not math.isfinite(float(torch.linalg.vector_norm(w))):
            skipped = replace(report, skipped="the server's step was not finite")
            return replace(state, round=state.round + 1), skipped

        # 8. Clients whose updates count have a new state.
        new_states = [(request.ids[places], rows) for places, rows in uploads.collector.client_state]
        state.clients.accept(request.ids[accepted], new_states, request.round + 1)

        # 9. `Observers.observe` shows the new model to the averages, such as a window, but for one that has already
        #    seen the clients' mean in 7.
        after = self.observe(state, w)
        after.optimiser = OptimiserState(optimiser)
        after.server_state = server_state
        after.aggregation = AggregationMemory(memory_of_rule)
        return after, report

    def ask(self, state: State, *, ids: Ints | None = None, probed: Uploads | None = None) -> Request:
        """The request to the clients of the next round; it is empty if no client takes part.

        A method with a probe makes two requests. The first is the probe, with the model alone. The second goes to who
        gave a usable answer, and contains the means of `probed`. With `ids` `[s]` the round has these clients.
        """
        state.check_usable()
        sent, download = self.send(state)
        job: Job = "train"
        if probed is not None:
            ids = probed.collector.ids[probed.collector.accepted]
            download = Download(download | probed.mean())
        elif "probe" in self.method.overridden:
            job = "probe"
            download = Download({})
        if ids is None:
            ids = self.sampling.clients(state.round, self.clients.sizes, self.seed)
        return Request(
            job=job,
            round=state.round,
            ids=ids,
            sent=sent,
            server_state=download,
            clients=state.clients.recall(ids, state.w.device),
            aggregation=state.aggregation,
        )

    def send(self, state: State) -> tuple[WholeModel, Download]:
        """The model `[D]` that the clients of the next round receive, and the method's vectors."""
        w = state.w
        if self.broadcaster is not None:
            w = self.broadcaster.sent(state, w, state.round, state.choice)
        with self._no_draws["method"]():
            common, vectors = self.method.send(self.sharing.common_of(w), state.server_state, state.round)
        return self.sharing.with_common(CommonPart(common), w), Download(vectors)

    def collect(self, request: Request) -> Uploads:
        """Let the executor answer a request, and sum up the answers."""
        no_draws = self._no_draws["aggregation"]
        uploads = Uploads(request, self.aggregation, self.method, self.clients.sizes, self.pieces, no_draws)
        if len(request.ids):
            uploads.collector.hear(self.executor.running.work(request), uploads.take)
        return uploads

    @cached_property
    def _no_draws(self) -> dict[str, Watch]:
        """For the hooks of each part of the user's own: what refuses their draws from global generators."""
        parts = {"method": self.method, "aggregation": self.aggregation, "server": self.server}
        return {name: no_draws_in_hooks({f"Federation.{name}": part}) for name, part in parts.items()}

    def observe(self, state: State, w: WholeModel) -> State:
        """The state with `w` `[D]` as the next global model, after every average has observed it."""
        state.spent = True
        self.observers.observe(state, w, state.round + 1)
        return replace(state, round=state.round + 1, w=w)
