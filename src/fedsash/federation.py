"""The round: sample, train, aggregate, move, observe."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .aggregation import Mean, Sums
from .averages import Average, Observer
from .checks import check
from .data.federated import FederatedData
from .engines import Engine, Executor, Work, resolve, start
from .engines.direct import threads
from .engines.dropout import draws_dropout
from .engines.gradients import Loss
from .evaluation import Evaluation, Evaluator, Metrics
from .layout import Layout
from .local import Client
from .methods import FedAvg, Method, Vectors
from .sampling import Sampling, Uniform
from .servers import SGD, Server
from .state import Best, State


@dataclass(frozen=True)
class Feed:
    """Sends an average to the clients instead of the model (IMA).

    From the end of round `start` (0-based; the papers' t_s) on, `average` takes the model's place: first in what the
    clients of round `start + 1` receive. `order`: `"after"` the server optimiser, IMA's eq. 5: the average is of
    global models and is sent in their place. `"before"` it, as in IMA's published code with FedAdam and FedYogi: the
    average is of the clients' means, and its distance from the model is the update that the server optimiser gets;
    clients receive the model. With the plain server step both are the same.
    """

    average: str
    start: int = 0
    order: Literal["after", "before"] = "after"

    def __post_init__(self) -> None:
        check(self.start >= 0, "Feed.start", self.start, "must not be negative")


@dataclass
class Outcome:
    """What a round was: who took part, on how many samples, whose upload was refused, whether the model moved."""

    round: int
    clients: np.ndarray
    samples: int = 0
    refused: list[int] = field(default_factory=list)
    moved: bool = True


@dataclass
class Federation:
    """A federation of clients, and how it is trained; `start()` gives the first state, `round(state)` the next.

    `model` is any `nn.Module` without BatchNorm; it is copied, never changed. `averages` observe the global models
    under names of their own and never change the training; `feed` closes the loop. `loss(output, y)` gives one number
    a sample. Every draw follows from `seed`. Workers and compiled code start with the first round and end with
    `close()` (or a `with` block).
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
    loss: Loss = field(default=lambda output, y: F.cross_entropy(output, y, reduction="none"))
    engine: Engine = field(default_factory=Engine)
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        self._check()
        device = pick_device(self.device)
        self.model = copy.deepcopy(self.model).to(device)
        self.data = self.data.to(device)
        self.layout = Layout(self.model)
        self._sizes = self.data.sizes
        batches = self.client.batches(self.data.clients, self.seed, self.layout.flatten(self.model))
        self._samples = lru_cache(batches.samples)
        self.observers = {name: Observer(a, self.layout.ranges(a.part)) for name, a in self.averages.items()}
        self._evaluator = Evaluator(self.model, self.loss, self.data, self.evaluation)
        self._executor: Executor | None = None

    def start(self, folder: Path | None = None) -> State:
        """The state before the first round; averages that keep models on disk put them into `folder`."""
        w = self.layout.flatten(self.model)
        clients = len(self.data.clients)
        return State(
            round=0,
            w=w,
            server=self.server.init(w),
            shared=self.method.shared(w),
            mine={name: _for_all(value, clients) for name, value in self.method.mine(w).items()},
            averages={name: observer.init(w, folder) for name, observer in self.observers.items()},
        )

    @torch.no_grad()
    def round(self, state: State) -> tuple[State, Outcome]:
        """One round. The given state is used up: averages and client memories are updated in place."""
        t = state.round
        ids = self.sampling.clients(t, self._sizes, self.seed)
        samples = self._samples(self.client.schedule.epochs(t, self.client.epochs))
        outcome = Outcome(t, ids, int(samples[ids].sum()))
        if not len(ids):
            return self._skip(state, outcome)
        sent = self.sent(state)
        mine = {name: rows[torch.from_numpy(ids)] for name, rows in state.mine.items()}
        sums = self._train(state, sent, mine, outcome)
        if not sums.accepted:
            return self._skip(state, outcome)
        mean = sums.mean()
        delta = self._before_server(state, sent, mean.pop("delta"))
        w, server = self.server.step(sent, delta, state.server)
        if not math.isfinite(float(torch.linalg.vector_norm(w))):
            return self._skip(state, outcome)
        for name, rows in mine.items():
            state.mine[name][torch.from_numpy(ids)] = rows
        shared = self.method.absorb(state.shared, mean, sums.accepted / len(self.data.clients))
        for name, observer in self.observers.items():
            if not self._feeds(name, "before"):
                observer.observe(state.averages[name], w, t + 1)
        return replace(state, round=t + 1, w=w, server=server, shared=shared), outcome

    def sent(self, state: State) -> Tensor:
        """The model `[D]` that the clients of the next round receive."""
        feed = self.feed
        if feed is None or feed.order == "before" or state.round <= feed.start:
            return state.w
        return self.observers[feed.average].value(state.averages[feed.average], state.w)

    def models(self, state: State) -> dict[str, Tensor]:
        """The global model, as `"model"`, and by its name the value of every average that has seen a model."""
        seen = {name: o for name, o in self.observers.items() if o.count(state.averages[name])}
        return {"model": state.w} | {name: o.value(state.averages[name], state.w) for name, o in seen.items()}

    def evaluate(self, state: State) -> list[Metrics]:
        """Evaluate the model and all averages, and keep the best of each in the state."""
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
        return results

    def export(self, w: Tensor) -> bytes:
        """The model `w` as the safetensors of a state dict that loads into the plain `nn.Module`."""
        from safetensors.torch import save

        with self.layout.applied(self.model, w):
            return save({name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()})

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
        work = Work(self.model, self.loss, self.method, self.client, self.data, self.seed, dropout, sample)
        self.engine, notes = resolve(self.engine, work, rounds)
        self._executor = start(self.engine, work)
        return notes

    @property
    def executor(self) -> Executor:
        """The running engine."""
        self.prepare()
        assert self._executor is not None
        return self._executor

    def _train(self, state: State, sent: Tensor, mine: Vectors, outcome: Outcome) -> Sums:
        """Train the round's clients and add up what they send; `mine` `[s, ...]` becomes what they remember."""
        ids = outcome.clients
        sums = self.aggregation.begin(self.method, self._sizes[ids])
        for trained in self.executor.train(state.round, ids, sent, state.shared, mine):
            good = sums.add(trained.first, trained.upload, trained.norms)
            block = ids[trained.first : trained.first + len(trained.norms)]
            for name, rows in trained.mine.items():
                mine[name][[trained.first + i for i in good]] = rows[good]
            if len(good) < len(block):
                outcome.refused += [int(client) for i, client in enumerate(block) if i not in good]
        return sums

    def _before_server(self, state: State, sent: Tensor, delta: Tensor) -> Tensor:
        """The update that the server optimiser gets: with a feed before it, the average's distance from the model."""
        if self.feed is None or self.feed.order == "after":
            return delta
        observer, seen = self.observers[self.feed.average], state.averages[self.feed.average]
        mean = sent + delta
        observer.observe(seen, mean, state.round + 1)
        return observer.value(seen, mean) - sent if state.round >= self.feed.start else delta

    def _skip(self, state: State, outcome: Outcome) -> tuple[State, Outcome]:
        """Leave everything as it was: nobody answered, or nothing that came can be used."""
        outcome.moved = False
        return replace(state, round=state.round + 1), outcome

    def _feeds(self, name: str, order: str) -> bool:
        return self.feed is not None and self.feed.average == name and self.feed.order == order

    def _draws_dropout(self) -> bool:
        index = torch.from_numpy(self.data.clients[0][:1]).to(self.data.train.x.device)
        x = self.data.transform.prepare(self.data.train.x[index]).to(self.layout.dtype)
        model = copy.deepcopy(self.model).train()
        return draws_dropout(lambda: model(x))

    def _check(self) -> None:
        check_names(self.averages)
        if self.feed is not None:
            known = ", ".join(self.averages) or "none"
            check(self.feed.average in self.averages, "Feed.average", self.feed.average, f"must be an average: {known}")
        check(self.seed >= 0, "Federation.seed", self.seed, "must not be negative")
        self.sampling.clients(0, self.data.sizes, self.seed)


def check_names(averages: Iterable[str]) -> None:
    """Raise `ValueError` for an average whose name can't be a file's, or is taken."""
    right = 'must be a name of letters, digits, _ and -, other than "model", that doesn\'t end in "-best"'
    for name in averages:
        taken = name == "model" or name.endswith("-best")
        check(bool(re.fullmatch(r"[\w-]+", name)) and not taken, "averages", name, right)


def pick_device(name: str) -> torch.device:
    """The device of that name; `"auto"` is the first of CUDA, MPS and the CPU that is there."""
    if name != "auto":
        try:
            return torch.zeros((), device=name).device
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device = {name!r}: not available here ({str(error).splitlines()[0]})") from None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _for_all(value: Tensor, clients: int) -> Tensor:
    """A row for each client, `[N, ...]`; zeros take no memory before they are written to."""
    if not bool(value.any()):
        return value.new_zeros((clients, *value.shape))
    return value.expand(clients, *value.shape).clone()
