"""The round: sample, train, aggregate, move, observe."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor, nn

from .aggregation import Effort, Mean, Sums
from .averages import Average, Observer, check_names
from .batches import Ints
from .checks import check
from .data.federated import FederatedData
from .engines import Engine, Executor, Work, pick_device, resolve, start
from .engines.direct import Job, threads
from .engines.dropout import draws_dropout
from .engines.gradients import Loss
from .evaluation import Evaluation, Evaluator, Metrics
from .feed import Feed
from .layout import Layout
from .local import Client
from .methods import FedAvg, Method, Received, Vectors
from .methods.base import overrides
from .sampling import Sampling, Uniform
from .servers import SGD, Server
from .state import Best, State
from .storage import client_rows

UNUSABLE = "every upload was not finite, or longer than {:g}"


@dataclass
class Outcome:
    """What a round was: who took part, on how many samples, whose upload was refused, why the model did not move."""

    round: int
    clients: np.ndarray
    samples: int = 0
    refused: list[int] = field(default_factory=list)
    skipped: str = ""

    @property
    def moved(self) -> bool:
        """Whether the model is another one than before the round."""
        return not self.skipped


@dataclass
class Federation:
    """A federation of clients, and how it is trained; `start()` gives the first state, `round(state)` the next.

    `model` is any `nn.Module` without BatchNorm; it is copied, never changed. `averages` observe the global models
    under names of their own and never change the training; `feed` closes the loop. `loss(output, y)` gives one number a
    sample; without one it is that of the data's task. Every draw follows from `seed`. Workers and compiled code start
    with the first round and end with `close()` (or a `with` block).
    """

    model: nn.Module
    data: FederatedData
    method: Method = field(default_factory=FedAvg)
    client: Client = field(default_factory=Client)
    aggregation: Mean = field(default_factory=Mean)
    server: Server = field(default_factory=SGD)
    averages: Mapping[str, Average] = field(default_factory=dict)
    feed: Feed | None = None
    sampling: Sampling = field(default_factory=lambda: Uniform(10))
    evaluation: Evaluation = field(default_factory=Evaluation)
    loss: Loss | None = None
    engine: Engine = field(default_factory=Engine)
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        self._check()
        self.loss = loss = self.loss or self.data.task.loss
        device = pick_device(self.device)
        self.model = copy.deepcopy(self.model).to(device)
        self.data = self.data.to(device)
        self.layout = Layout(self.model)
        fraction, largest = self.evaluation.held_out, self.data.sizes.max()
        self.data, held_out = self.data.hold_out(fraction, self.seed)
        right = f"must hold out a sample of the largest client, which has {largest}, or be 0"
        check(fraction == 0 or len(held_out) > 0, "evaluation.held_out", fraction, right)
        self._sizes = self.data.sizes
        self._batches = self.client.batches(self.data.clients, self.seed, self.layout.flatten(self.model))
        self._samples = lru_cache(self._batches.samples)
        self.observers = {name: Observer(a, self.layout.ranges(a.part)) for name, a in self.averages.items()}
        self._evaluator = Evaluator(self.model, loss, self.data, self.evaluation, held_out)
        self._executor: Executor | None = None

    def start(self, folder: Path | None = None) -> State:
        """The state before the first round; models and client memories that lie on disk are put into `folder`."""
        w = self.layout.flatten(self.model)
        clients = len(self.data.clients)
        return State(
            round=0,
            w=w,
            server=self.server.init(w),
            shared=self.method.shared(w, self.layout),
            mine={name: client_rows(value, clients, folder) for name, value in self.method.mine(w).items()},
            averages={name: observer.init(w, folder) for name, observer in self.observers.items()},
            last=torch.zeros(clients, dtype=torch.int64),
            choice=self.feed.first() if self.feed and self.feed.adaptive else None,
        )

    @torch.no_grad()
    def round(self, state: State) -> tuple[State, Outcome]:
        """One round. The given state is used up: averages and client memories are updated in place."""
        t = state.round
        ids = self.sampling.clients(t, self._sizes, self.seed)
        samples = self._samples(self.client.schedule.epochs(t, self.client.epochs))
        outcome = Outcome(t, ids, int(samples[ids].sum()))
        if not len(ids):
            return self._skip(state, outcome, "nobody answered")
        sent, vectors = self.send(state)
        places = torch.from_numpy(ids)
        mine = {name: rows[places].to(sent.device) for name, rows in state.mine.items()}
        probed = self.probe(sent, vectors, mine, outcome)
        if len(outcome.refused) == len(ids):
            return self._skip(state, outcome, UNUSABLE.format(self.aggregation.limit))
        sums = self._collect("train", self._sums(t, ids), sent, vectors | probed, mine, outcome)
        if not sums.accepted:
            return self._skip(state, outcome, UNUSABLE.format(self.aggregation.limit))
        mean, total = sums.mean(), len(self.data.clients)
        received = Received(sent, sums.update(mean), mean, state.shared | probed, sums.accepted, total)
        delta, shared = self.method.absorb(received)
        w, server = self._step(state, sent, delta)
        if not math.isfinite(float(torch.linalg.vector_norm(w))):
            return self._skip(state, outcome, "the server's step was not finite")
        for name, rows in mine.items():
            state.mine[name][places] = rows.to(state.mine[name].device)
            state.last[places] = t + 1
        for name, observer in self.observers.items():
            if not self._feeds_before(name):
                observer.observe(state.averages[name], w, t + 1)
        return replace(state, round=t + 1, w=w, server=server, shared=shared), outcome

    def sent(self, state: State) -> Tensor:
        """The model `[D]` that the clients of the next round receive."""
        return self.send(state)[0]

    def models(self, state: State) -> dict[str, Tensor]:
        """The global model, as `"model"`, and by its name the value of every average that has seen a model."""
        seen = {name: o for name, o in self.observers.items() if o.count(state.averages[name])}
        return {"model": state.w} | {name: o.value(state.averages[name], state.w) for name, o in seen.items()}

    def evaluate(self, state: State) -> list[Metrics]:
        """Evaluate the model and all averages, keep the best of each in the state, and let an adaptive feed choose."""
        results = []
        settled = self.engine.workers == 1 and isinstance(self.engine.threads, int)
        count = self.engine.threads if settled else torch.get_num_threads()
        for name, w in self.models(state).items():
            with threads(int(count)):
                metrics = list(self._evaluator.evaluate(w, state.round, name))
            results += metrics
            test = next((m for m in metrics if m.split == "test"), None)
            if test and (name not in state.best or test.accuracy > state.best[name].accuracy):
                state.best[name] = Best(test.accuracy, state.round, w.clone())
        return results + self._choose(state, results)

    def judge(self, w: Tensor, round: int, name: str) -> list[Metrics]:
        """What any model `w` `[D]` comes to on every split, under this round and name; no state learns of it."""
        return list(self._evaluator.evaluate(w, round, name))

    def export(self, w: Tensor) -> bytes:
        """The model `w` as the safetensors of a state dict that loads into the plain `nn.Module`."""
        from safetensors.torch import save

        with self.layout.applied(self.model, w):
            return save({name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()})

    def memory(self) -> int:
        """The bytes of the engine's own processes, beside this one."""
        return 0 if self._executor is None else self._executor.memory()

    def close(self) -> None:
        """End the engine's processes."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def __enter__(self) -> Federation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, rounds: int | None = None) -> list[str]:
        """Start the engine, which first chooses what was left to choose; what it chose and why, in lines.

        `rounds` is the length of the run, if it is known: code is compiled for long runs only. Without this call the
        first round does it.
        """
        if self._executor is not None:
            return []
        sample = [self.sampling.clients(t, self._sizes, self.seed) for t in range(5)]
        sample = [ids for ids in sample if len(ids)] or [np.arange(1)]
        dropout = self._draws_dropout()
        loss = self.loss or self.data.task.loss
        work = Work(self.model, loss, self.method, self.client, self.data, self.seed, dropout, sample)
        self.engine, notes = resolve(self.engine, work, rounds)
        self._executor = start(self.engine, work)
        return notes

    @property
    def executor(self) -> Executor:
        """The running engine."""
        self.prepare()
        assert self._executor is not None
        return self._executor

    def send(self, state: State) -> tuple[Tensor, Vectors]:
        """What the clients of the next round receive: a model, and the method's vectors."""
        w = state.w
        if self.feed is not None and self.feed.order == "after":
            choice = state.choice or self.feed.first()
            if choice.sends(state.round):
                w = self.observers[choice.average].value(state.averages[choice.average], w)
        return self.method.send(w, state.shared, state.round)

    def _choose(self, state: State, results: list[Metrics]) -> list[Metrics]:
        """Let an adaptive feed decide on what was held out; its choice as one more record."""
        if state.choice is None or state.round % self.evaluation.every:
            return []
        held_out = {m.model: m for m in results if m.split == "held_out"}
        accuracy = {name: m.accuracy for name, m in held_out.items()}
        state.choice = state.choice.after(state.round, accuracy)
        chosen = held_out.get(state.choice.average, held_out["model"])
        return [replace(chosen, model=state.choice.average, split="feed", more=state.choice.evidence(accuracy))]

    def probe(self, sent: Tensor, vectors: Vectors, mine: Vectors, outcome: Outcome) -> Vectors:
        """The means of what the round's clients answer before their training, if the method asks for it."""
        if not overrides(self.method, "probe"):
            return {}
        sums = Mean(limit=self.aggregation.limit).begin(self.method, self._sizes[outcome.clients])
        return self._collect("probe", sums, sent, vectors, mine, outcome).mean()

    def _sums(self, round: int, ids: Ints) -> Sums:
        """Empty sums for the uploads of a round."""
        if not self.aggregation.needs_effort:
            return self.aggregation.begin(self.method, self._sizes[ids])
        schedule, client = self.client.schedule, self.client
        steps = self._batches.numbers(self._sizes[ids], schedule.epochs(round, client.epochs))[0]
        a = client.coefficients(schedule.lr(round, client.lr), steps, self.method)
        return self.aggregation.begin(
            self.method, self._sizes[ids], Effort(torch.from_numpy(steps), torch.from_numpy(a))
        )

    def _collect(self, job: Job, sums: Sums, sent: Tensor, vectors: Vectors, mine: Vectors, outcome: Outcome) -> Sums:
        """Let the round's clients do a job and add up what they send; `mine` `[s, ...]` becomes what they remember."""
        ids = outcome.clients
        for trained in self.executor.work(job, outcome.round, ids, sent, vectors, mine):
            good = sums.add(trained.first, trained.upload, trained.norms)
            block = ids[trained.first : trained.first + len(trained.norms)]
            for name, rows in trained.mine.items():
                mine[name][[trained.first + i for i in good]] = rows[good]
            refused = (int(client) for i, client in enumerate(block) if i not in good)
            outcome.refused += [client for client in refused if client not in outcome.refused]
        return sums

    def _step(self, state: State, sent: Tensor, delta: Tensor) -> tuple[Tensor, Vectors]:
        """The server optimiser's step; with a feed before it, the update is the average's distance from the model."""
        feed, t = self.feed, state.round
        if feed is None or feed.order == "after":
            return self.server.step(sent, delta, state.server)
        choice = feed.first()
        observer, seen = self.observers[choice.average], state.averages[choice.average]
        observer.observe(seen, sent + delta, t + 1)
        if not choice.sends(t + 1):
            return self.server.step(sent, delta, state.server)
        mean = observer.value(seen, sent + delta) - sent
        if feed.order == "code" and t == choice.start:
            return self.server.step(sent, mean, self.server.init(sent))[0], state.server
        return self.server.step(sent, mean, state.server)

    def _skip(self, state: State, outcome: Outcome, why: str) -> tuple[State, Outcome]:
        """Leave everything as it was, and say why."""
        outcome.skipped = why
        return replace(state, round=state.round + 1), outcome

    def _feeds_before(self, name: str) -> bool:
        return self.feed is not None and self.feed.order != "after" and name in self.feed.averages

    def _draws_dropout(self) -> bool:
        index = torch.from_numpy(self.data.clients[0][:1]).to(self.data.train.x.device)
        x = self.data.transform.prepare(self.data.train.x[index]).to(self.layout.dtype)
        model = copy.deepcopy(self.model).train()
        return draws_dropout(lambda: model(x))

    def _check(self) -> None:
        check_names(self.averages)
        if self.feed is not None:
            self.feed.fits(self.averages, self.evaluation.held_out)
        check(self.seed >= 0, "Federation.seed", self.seed, "must not be negative")
        self.sampling.clients(0, self.data.sizes, self.seed)
