"""What uploads carry: models that a federation's engine trains, or nothing in a study of time alone.

Events decide when a model is sent, trained and used, and never what a training makes of it: so a client's training is
computed when its upload has arrived, and those whose upload fails cost nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ..aggregation import Mean
from ..analysis.flatness import Curvature
from ..checks import check
from ..evaluation import Metrics
from ..exchange import Reply, Request
from ..federation import Federation
from ..methods.base import overrides
from ..sampling import Sampling
from ..servers import SGD

Vector = Any
"""A model: a tensor `[D]`, float64 where it is calculated with; 0.0 in a study of time."""

Ints = NDArray[np.int64]


class Learner(Protocol):
    """A server's model and its clients' training. `samples` `[N]` is what each passes over in a training."""

    samples: Ints
    bytes: int

    def asked(self, round: int) -> Ints: ...

    def newest(self) -> Vector: ...

    def model(self) -> Vector: ...

    def train(self, client: int, number: int, start: Vector) -> Vector | None: ...

    def move(self, w: Vector) -> None: ...

    def round(self, clients: list[int]) -> None: ...

    def evaluate(self) -> list[Metrics]: ...

    def gradient(self) -> float: ...


class Timing:
    """No models: every model is the number 0."""

    def __init__(self, clients: int, bytes: int, sampling: Sampling, seed: int) -> None:
        self.samples: Ints = np.ones(clients, dtype=np.int64)
        self.bytes, self._sampling, self._seed = bytes, sampling, seed
        self.asked(0)  # refuses a sampling that does not fit

    def asked(self, round: int) -> Ints:
        """The clients that a synchronous round asks."""
        return self._sampling.clients(round, self.samples, self._seed)

    def newest(self) -> Vector:
        """The model that clients are sent."""
        return 0.0

    def model(self) -> Vector:
        """The global model."""
        return 0.0

    def train(self, client: int, number: int, start: Vector) -> Vector | None:
        """What a client makes of a model."""
        return 0.0

    def move(self, w: Vector) -> None:
        """Make `w` the global model."""

    def round(self, clients: list[int]) -> None:
        """A synchronous round of these clients."""

    def evaluate(self) -> list[Metrics]:
        """The metrics of the model and its averages."""
        return []

    def gradient(self) -> float:
        """The length of the training loss's gradient."""
        return 0.0


class Learning:
    """The models of a federation; its own engine trains, its averages observe every global model, its feed is fed.

    Training `number` of a client (0 is its first) draws as the federation's round of that number does: so no client
    sees the same batches twice, whatever the events are.
    """

    def __init__(self, federation: Federation, bytes: int | None) -> None:
        self.federation = federation
        self.state = federation.start()
        self.samples: Ints = federation.client.cut.numbers(federation.sizes, federation.client.epochs)[2]
        self.bytes = bytes or self.state.w.numel() * self.state.w.element_size()

    def asked(self, round: int) -> Ints:
        return self.federation.sampling.clients(round, self.federation.sizes, self.federation.seed)

    def newest(self) -> Vector:
        return self.federation.send(self.state)[0]

    def model(self) -> Vector:
        return self.state.w.double()

    def train(self, client: int, number: int, start: Vector) -> Vector | None:
        """The model float64 `[D]` that a client makes of `start`; None if the federation's guard refuses it."""
        ids = np.array([client])
        (reply,) = self.federation.executor.work(Request("train", number, ids, start, {}, {}, np.zeros_like(ids)))
        assert isinstance(reply, Reply)
        used = self.federation.aggregation.accepts(reply.norms)
        return start.double() + reply.upload["delta"][0].double() if used else None

    def move(self, w: Vector) -> None:
        self.state = self.federation.observe(self.state, w.to(self.state.w.dtype))

    def round(self, clients: list[int]) -> None:
        """The federation's own round, in which these clients answer."""
        federation, state = self.federation, self.state
        request = federation.ask(state, ids=np.array(clients, dtype=np.int64))
        probed = federation.collect(request) if request.job == "probe" else None
        request = request if probed is None else federation.ask(state, probed=probed)
        self.state, _ = federation.finish(state, request, federation.collect(request), probed)

    def evaluate(self) -> list[Metrics]:
        metrics = self.federation.evaluate(self.state)
        self.state, more = self.federation.learn(self.state, metrics)
        return metrics + more

    def gradient(self) -> float:
        """||grad F(w)|| at the global model, F the mean loss over all clients' training samples, not augmented."""
        return float(self._training_loss.gradient(self.state.w).norm())

    @cached_property
    def _training_loss(self) -> Curvature:
        federation = self.federation
        data, loss = federation.training_data, federation.loss
        held = data.train[torch.from_numpy(np.concatenate(data.clients))]
        return Curvature(federation.module, data, held, loss, federation.evaluation.batch)


def check_asynchronous(federation: Federation) -> None:
    """Raise `ValueError` for what has a meaning in rounds only: they go with the synchronous scheduler."""
    method, w = federation.method, federation.layout.flatten(federation.module)
    kept = bool(method.shared(w, federation.layout)) or bool(method.mine(w))
    changed = [hook for hook in ("send", "probe", "finish", "absorb") if overrides(method, hook)]
    right = "remembers or sums up by rounds: take the scheduler synchronous, or a method like fedavg, fedprox, fedsam"
    check(not kept and not changed, "method", type(method).__name__, right)
    right = "an asynchronous scheduler moves the model itself: leave it out"
    check(federation.server == SGD(), "server", federation.server, right)
    aggregation = type(federation.aggregation)
    check(aggregation is Mean, "aggregation", aggregation.__name__, right)
    feed = federation.feed
    check(feed is None or feed.order == "after", "Feed.order", getattr(feed, "order", ""), "must be 'after' here")
