"""What uploads carry: models that a federation's engine trains, or nothing where only time counts.

Events decide when a model is sent, trained and used, and never what a training makes of it: so a client's training is
computed when its upload has arrived, and those whose upload fails cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..aggregation import WeightedMean
from ..basics.arrays import Ints
from ..basics.errors import check
from ..basics.layout import Layout
from ..data.federated import FederatedData
from ..evaluation import Curvature
from ..exchange import Reply, Request
from ..federation import Federation
from ..local import LocalTraining
from ..sampling import Sampling, Uniform
from ..servers import ServerSGD
from ..state import State
from ..tasks import Loss
from .vectors import Ledger, Vector

AnyModel: TypeAlias = Any
"""A model: a `Vector`, float64 where it is calculated with; 0.0 where only time counts."""


class Learner(Protocol):
    """A server's model and its clients' training. `samples` `[N]` is what each passes over in a training.

    A model is `bytes` long. `asked` are the clients that a synchronous round asks, `newest` is the model that clients
    are sent, `model` the global one, which `move` sets. `train` is what training `number` of a client makes of a model;
    None if it can't be used.
    """

    samples: Ints
    bytes: int

    def asked(self, round: int) -> Ints: ...

    def newest(self) -> AnyModel: ...

    def model(self) -> AnyModel: ...

    def train(self, client: int, number: int, start: AnyModel) -> AnyModel | None: ...

    def move(self, w: AnyModel) -> None: ...


EVERYBODY = Uniform(fraction=1.0)


class Timing:
    """No models: every model is the number 0. Clients pass over `samples` `[N]`; without, over equally many."""

    def __init__(
        self, clients: int, bytes: int, sampling: Sampling = EVERYBODY, seed: int = 0, samples: Ints | None = None
    ) -> None:
        self.samples: Ints = np.ones(clients, dtype=np.int64) if samples is None else samples
        self.bytes, self._sampling, self._seed = bytes, sampling, seed
        self.asked(0)  # refuses a sampling that does not fit

    def asked(self, round: int) -> Ints:
        return self._sampling.clients(round, self.samples, self._seed)

    def newest(self) -> AnyModel:
        return 0.0

    def model(self) -> AnyModel:
        return 0.0

    def train(self, client: int, number: int, start: AnyModel) -> AnyModel | None:
        return 0.0

    def move(self, w: AnyModel) -> None:
        return None


class Learning:
    """The models of a federation; its own engine trains, its averages observe every global model, its broadcast is fed.

    Training `number` of a client (0 is its first) draws as the federation's round of that number does: so no client
    sees the same batches twice, whatever the events are. `state` is the federation's after the last step. `refused` are
    the trainings (client, number) so far that can't be used. Since the last step `trained` have trained, on `passed`
    samples, and the uploads of `left_out` can't be used.

    With `replaying` nobody trains and no vector has a value; then `refused` must be what it was.
    """

    def __init__(self, federation: Federation, state: State, bytes: int | None) -> None:
        self.federation, self.ledger = federation, Ledger()
        self.samples: Ints = passed_over(federation.local, federation.sizes)
        self.bytes = bytes or length(federation.module)
        self.replaying = False
        self.refused: set[tuple[int, int]] = set()
        self._sent: Vector | None = None
        self.begin(state)

    def begin(self, state: State) -> None:
        """Go on towards the next step."""
        self.state = state
        self.trained: list[int] = []
        self.left_out: list[int] = []
        self.passed = 0

    def end(self) -> None:
        """A step has been made, and all that follows from it at once has been done."""
        self._sent = None  # an adaptive broadcast may choose anew
        self.ledger.step()

    def asked(self, round: int) -> Ints:
        return self.federation.sampling.clients(round, self.federation.sizes, self.federation.seed)

    def newest(self) -> Vector:
        """The same vector for all that are sent this version, so that it is saved once."""
        if self._sent is None:
            self._sent = self.ledger.make(None if self.replaying else self.federation.send(self.state)[0])
        return self._sent

    def model(self) -> Vector:
        return self.ledger.make(None if self.replaying else self.state.w.double())

    def train(self, client: int, number: int, start: AnyModel) -> Vector | None:
        """The model float64 `[D]` that a client makes of `start`; None if its upload is refused, or does not come."""
        if self.replaying:
            return None if (client, number) in self.refused else self.ledger.make(None)
        self.trained.append(client)
        ids, w = np.array([client]), start.known
        request = Request(
            job="train", round=number, ids=ids, sent=w, server_state={}, client_state={}, last=np.zeros_like(ids)
        )
        (reply,) = self.federation.executor.work(request)
        if not isinstance(reply, Reply) or not self.federation.aggregation.accepts(reply.norms):
            self.refused.add((client, number))
            self.left_out.append(client)
            return None
        self.passed += int(reply.effort.samples.sum())
        return self.ledger.make(w.double() + reply.upload["delta"][0].double())

    def move(self, w: AnyModel) -> None:
        if not self.replaying:
            self.state = self.federation.observe(self.state, w.known.to(self.state.w.dtype))
        self._sent = None


def passed_over(local: LocalTraining, sizes: Ints) -> Ints:
    """How many samples each client passes over in a training, `[N]`."""
    return local.workload(sizes).samples


def length(module: nn.Module) -> int:
    """The bytes of a model's vector."""
    w = Layout(module).flatten(module)
    return w.numel() * w.element_size()


def gradient_norm(module: nn.Module, data: FederatedData, loss: Loss | None, batch: int) -> Callable[[Tensor], float]:
    """||grad F(w)|| as a function of w `[D]`, F the mean loss over all clients' training samples, not augmented."""
    held = data.train[torch.from_numpy(np.concatenate(data.clients)).to(data.train.y.device)]
    training_loss = Curvature(module, data, held, loss, batch)
    return lambda w: float(training_loss.gradient(w).norm())


def check_asynchronous(federation: Federation) -> None:
    """Raise `ValueError` for what has a meaning in rounds only: they go with the synchronous scheduler."""
    method, w = federation.method, federation.layout.flatten(federation.module)
    kept = bool(method.server_state(w, federation.layout)) or bool(method.client_state(w))
    changed = method.overridden & {"send", "probe", "upload", "server_update"}
    right = "remembers or sums up by rounds: take the scheduler synchronous, or a method like fedavg, fedprox, fedsam"
    check(not kept and not changed, "method", type(method).__name__, right)
    right = "an asynchronous scheduler moves the model itself: leave it out"
    check(federation.server == ServerSGD(), "server", federation.server, right)
    aggregation = type(federation.aggregation)
    check(aggregation is WeightedMean, "aggregation", aggregation.__name__, right)
    broadcast = federation.broadcast
    check(
        broadcast is None or broadcast.order == "after",
        "Broadcast.order",
        getattr(broadcast, "order", ""),
        "must be 'after' here",
    )
