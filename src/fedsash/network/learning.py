"""The models in uploads: trained by a federation's engine, or left out in a study of time.

Events decide when a model is sent, trained and used. They never change the result of a training. So a client's training
is computed only when its upload has arrived, and a training whose upload fails costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn

from ..client.messages import Answer, Reply, Request
from ..data.federated import FederatedData
from ..evaluation import Curvature
from ..methods.sampling import Sampling, Uniform
from ..server.federation import Federation
from ..server.state import State
from ..tasks import Loss
from ..vector.arrays import Ints
from ..vector.layout import Layout
from ..vector.spaces import CommonPart, Download, WholeModel
from .messages import Messages, model_bytes
from .vectors import Numbering, Vector

AnyModel: TypeAlias = Any
"""A model: a `Vector` (float64 in calculations), or 0.0 in a study of time."""


class Start(NamedTuple):
    """A model `w` and its version: the number of steps that the server had made."""

    w: AnyModel
    version: int


class Learner(Protocol):
    """A server's model and its clients' training.

    `samples` `[N]` are the numbers of samples that the clients pass over in a training. `messages` are the lengths of
    what a client is sent and sends. `asked` gives the clients that a synchronous round asks, `newest` the model that
    clients are sent, `model` the global model, which `move` replaces. `train` gives the result of a client's training
    `number` from the model `start`, or None if it can't be used. `statistics` are a model's running statistics of
    BatchNorm, 0.0 if it has none; `with_statistics` gives a model others.
    """

    samples: Ints
    messages: Messages

    def asked(self, round: int) -> Ints: ...

    def newest(self) -> AnyModel: ...

    def model(self) -> AnyModel: ...

    def train(self, client: int, number: int, start: Start) -> AnyModel | None: ...

    def statistics(self, w: AnyModel) -> AnyModel: ...

    def with_statistics(self, w: AnyModel, statistics: AnyModel) -> AnyModel: ...

    def move(self, w: AnyModel) -> None: ...


EVERYBODY = Uniform(fraction=1.0)


class Timing:
    """A study of time without models: every model is the number 0, and its message is `bytes` long.

    `samples` `[N]` are the numbers of samples that the clients pass over in a training; one each by default.
    """

    def __init__(
        self, clients: int, bytes: int, sampling: Sampling = EVERYBODY, seed: int = 0, samples: Ints | None = None
    ) -> None:
        if samples is None:
            samples = np.ones(clients, dtype=np.int64)
        self.samples: Ints = samples
        self.messages = Messages(bytes, bytes)
        self._sampling = sampling
        self._seed = seed
        self.asked(0)  # raises an error if the sampling does not fit

    def asked(self, round: int) -> Ints:
        return self._sampling.clients(round, self.samples, self._seed)

    def newest(self) -> AnyModel:
        return 0.0

    def model(self) -> AnyModel:
        return 0.0

    def train(self, client: int, number: int, start: Start) -> AnyModel | None:
        return 0.0

    def statistics(self, w: AnyModel) -> AnyModel:
        return 0.0

    def with_statistics(self, w: AnyModel, statistics: AnyModel) -> AnyModel:
        return w

    def move(self, w: AnyModel) -> None:
        return None


class Learning:
    """The models of a federation, trained by its own engine.

    The federation's averages observe every global model, and its broadcast sends an average to the clients. Training
    `number` of a client (0 is its first) makes the draws of the federation's round `number`. So no client sees the same
    batches twice, whatever the events are. Its learning rate is that of the round `number`, too, or `by_steps` that of
    the round after as many as the server had made steps when it sent the client its model.

    `state` is the federation's state after the last step. `refused` holds the trainings (client, number) so far whose
    uploads can't be used. Since the last step, the clients `trained` have trained on `passed` samples, and the uploads
    of `left_out` can't be used. With `replaying` no client trains and no vector has a value. Then `refused` must be the
    same set as in the run that is replayed. `answers` are those of clients that train in real time, which have arrived
    before their result is used; all others train when it is used.
    """

    def __init__(self, federation: Federation, state: State, bytes: int | None, by_steps: bool = False) -> None:
        self._federation = ref(federation)
        self.numbering = Numbering()
        self.samples: Ints = federation.training().samples(federation.sizes)
        size = bytes or model_bytes(federation.sharing)
        self.messages = Messages(size, size)
        self._by_steps = by_steps
        self.replaying = False
        self.refused: set[tuple[int, int]] = set()
        self.answers: dict[tuple[int, int], Answer] = {}
        self._sent: Vector | None = None
        self.begin(state)

    @property
    def federation(self) -> Federation:
        """The federation. Its driver keeps it: events lie in cycles, and would keep its data after the run's end."""
        federation = self._federation()
        assert federation is not None
        return federation

    def begin(self, state: State) -> None:
        """Set the state from which the next step is made."""
        self.state = state
        self.trained: list[int] = []
        self.left_out: list[int] = []
        self.passed = 0
        self.moved = False

    def end(self) -> None:
        """Finish a step, after all events at the same instant."""
        self._sent = None  # an adaptive broadcast may choose anew
        self.numbering.step()

    def asked(self, round: int) -> Ints:
        return self.federation.sampling.clients(round, self.federation.sizes, self.federation.seed)

    def newest(self) -> Vector:
        """The model that clients are sent: one vector for each version, so that it is saved once."""
        if self._sent is None:
            sent = None
            if not self.replaying:
                sent, _ = self.federation.server_round.send(self.state)
            self._sent = self.numbering.make(sent)
        return self._sent

    def model(self) -> Vector:
        if self.replaying:
            return self.numbering.make(None)
        return self.numbering.make(self.state.w.double())

    def ask(self, client: int, number: int, start: Start) -> Request:
        """The request for a client's training `number` from `start`."""
        server_steps = None
        if self._by_steps:
            server_steps = start.version
        return Request(
            job="train",
            round=number,
            ids=np.array([client]),
            sent=start.w.known,
            server_state=Download({}),
            server_steps=server_steps,
        )

    def train(self, client: int, number: int, start: Start) -> Vector | None:
        """The model, float64 `[D]`, after a client's training from `start`; None if its upload can't be used."""
        if self.replaying:
            if (client, number) in self.refused:
                return None
            return self.numbering.make(None)
        self.trained.append(client)
        w = start.w.known
        answer = self.answers.pop((client, number), None)
        if answer is None:
            (answer,) = self.federation.executor.work(self.ask(client, number, start))
        if isinstance(answer, Reply):
            self.passed += int(answer.effort.samples.sum())  # a refused upload's, too
        if not isinstance(answer, Reply) or not self.federation.aggregation.accepts(answer.norms):
            self.refused.add((client, number))
            self.left_out.append(client)
            return None
        delta = CommonPart(answer.upload["delta"])
        change = self.federation.sharing.model_change(delta, answer.upload)[0]
        return self.numbering.make(w.double() + change.double())

    def statistics(self, w: Vector) -> Vector | float:
        trained = self.federation.layout.trained
        if trained == self.federation.layout.size:
            return 0.0
        if self.replaying:
            return self.numbering.make(None)
        return self.numbering.make(w.known[trained:])

    def with_statistics(self, w: Vector, statistics: Vector | float) -> Vector:
        if not isinstance(statistics, Vector):
            return w
        if self.replaying:
            return self.numbering.make(None)
        trained = self.federation.layout.trained
        return self.numbering.make(torch.cat([w.known[:trained], statistics.known]))

    def move(self, w: AnyModel) -> None:
        self.moved = True
        if not self.replaying:
            model = WholeModel(w.known.to(self.state.w.dtype))
            self.state = self.federation.server_round.observe(self.state, model)
        self._sent = None


def gradient_norm(
    module: nn.Module, layout: Layout, data: FederatedData, loss: Loss | None, batch: int
) -> Callable[[Tensor], float]:
    """||grad F(w)|| as a function of w `[D]`. F is the mean loss over all clients' training samples, not augmented."""
    numbers = torch.from_numpy(np.concatenate(data.clients)).to(data.train.y.device)
    training_loss = Curvature(module, data, data.train[numbers], loss, batch, layout)
    return lambda w: float(training_loss.gradient(w).norm())
