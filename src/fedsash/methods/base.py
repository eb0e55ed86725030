"""What a federated method may change: what is sent, the local step, what is remembered, what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.layout import Layout
from ..basics.typed import typed
from ..schedules import LocalSchedule

Upload = Vectors
"""What clients send: `"delta"` = w_local - w_sent `[C, D]`, and whatever else the method needs the mean of."""

Scalar = float | Tensor
"""One number a client: a float for a single client, a tensor `[C, 1]` for a block."""

Weighting = Literal["samples", "uniform"]

Hook = Literal[
    "server_state",
    "client_state",
    "send",
    "probe",
    "round_state",
    "direction",
    "objective",
    "after_step",
    "upload",
    "server_update",
]
"""A function of `Method` that a method may override."""


@dataclass(kw_only=True)
class Step:
    """One local step of C clients side by side.

    `w` `[C, D]` is where the clients are, `sent` `[D]` what they received, `lr` the step's learning rate;
    `server_state` are the method's vectors as sent by the server, `client_state` those that the clients remember
    between their rounds, and `work` those of this round (see `Method.round_state`), `[C, ...]`; `y` and `weights` `[C,
    B]` the step's labels and the weights of its samples, which sum to 1 for a client, and to 0 where it has finished
    already.
    """

    w: Tensor
    sent: Tensor
    lr: Scalar
    server_state: Vectors
    client_state: Vectors
    round_state: Vectors
    y: Tensor
    weights: Tensor
    layout: Layout
    grad: Callable[[Tensor], Tensor]
    """`grad(w)`: the gradient `[C, D]` of each client's mean loss over this step's batch at any `w` `[C, D]`; asked
    again, it uses the same samples, the same augmentation and the same dropout."""
    features: Callable[[], Tensor]
    """`features()`: what entered the classifier when `grad` was asked last, `[C, B, d]`; only with an `objective`."""


@dataclass(kw_only=True)
class LocalRun:
    """The local training of C clients in one round, before its first step (`begin`) and after its last (`finish`).

    `w` `[C, D]` is where they are, `sent` `[D]` what they received. In this round (counted from 0) each client takes
    `steps` local steps, `per_epoch` of them a pass over its `size` samples, with learning rates that sum to `lr_sum`
    (steps * lr where the rate is constant), and sees `samples` samples in all: `[C, 1]` each.
    """

    round: int
    w: Tensor
    sent: Tensor
    size: Tensor
    steps: Tensor
    per_epoch: Tensor
    samples: Tensor
    lr_sum: Tensor
    server_state: Vectors
    client_state: Vectors
    round_state: Vectors
    layout: Layout
    full_grad: Callable[[Tensor], Tensor]
    """`full_grad(w)`: the gradient `[C, D]` of each client's mean loss over all its samples at `w` `[C, D]`."""

    @property
    def delta(self) -> Tensor:
        """The clients' updates w - sent, `[C, D]`."""
        return self.w - self.sent

    @property
    def direction(self) -> Tensor:
        """The mean direction `[C, D]` that each client followed: -delta / lr_sum, and 0 where its rate was 0."""
        return self.delta / -self.lr_sum.clamp(min=torch.finfo(self.lr_sum.dtype).tiny)


@dataclass(kw_only=True)
class RoundMean:
    """What a round brought to the server.

    `mean` are the mean uploads of `clients` (s) clients out of `total` (N), and `update` `[D]` is what the aggregation
    made of their deltas: the mean delta, unless it is another rule. `server_state` is what the server remembered, with
    the means of a `probe` if there was one, and `sent` `[D]` what the clients received.
    """

    sent: Tensor
    update: Tensor
    mean: Vectors
    server_state: Vectors
    clients: int
    total: int


@dataclass(frozen=True)
@typed
class Method:
    """A federated method; as it stands it is FedAvg. A method overrides only what it changes.

    `weighting` says how the uploads of a round are averaged: `"samples"` (p_i = n_i / sum of the n of the clients that
    answered) or `"uniform"` (1/s). Uploads named in `uniform` are averaged uniformly either way.
    """

    _: KW_ONLY
    weighting: Weighting = "samples"
    uniform: ClassVar[tuple[str, ...]] = ()
    overridden: ClassVar[frozenset[Hook]] = frozenset()
    """The hooks that the method overrides, found when its class is made."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.overridden = frozenset(hook for hook in get_args(Hook) if getattr(cls, hook) is not getattr(Method, hook))

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        """What the server remembers for the method at the start, given the first model `w` `[D]`."""
        return {}

    def client_state(self, w: Tensor) -> Vectors:
        """What one client remembers before its first round."""
        return {}

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        """Where the clients of `round` (from 0) start, and which vectors they get beside it; `w` is to be trained."""
        return w, server_state

    def probe(self, local: LocalRun) -> Upload:
        """What the round's clients send in a pass before the training, whose mean joins `server_state`."""
        return {}

    def round_state(self, local: LocalRun) -> Vectors:
        """Vectors `[C, ...]` that clients work with in this round only; steps may change them in place."""
        return {}

    def direction(self, step: Step) -> Tensor:
        """The direction `[C, D]` that the local optimiser follows downhill; here the plain gradient."""
        return step.grad(step.w)

    def objective(self, features: Tensor, y: Tensor, weights: Tensor, server_state: Vectors) -> Tensor:
        """A term to add to one client's loss over a batch, from its `features` `[B, d]`, labels and weights `[B]`."""
        raise NotImplementedError

    def after_step(self, step: Step) -> None:
        """What follows a local step, in place."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        """What each client sends up, and what it remembers."""
        return {"delta": local.delta}, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        """The update `[D]` that the server optimiser gets, and what the server remembers from now on."""
        return received.update, received.server_state

    @property
    def proximal(self) -> float:
        """The strength mu of a pull mu * (w - sent) in the direction, for FedNova, which has to know of it."""
        return 0.0

    @property
    def local_schedule(self) -> LocalSchedule | None:
        """How the learning rate moves within a round, beside the client's own schedule; None: not at all."""
        return None


def zeros(w: Tensor) -> Tensor:
    """A vector of zeros like `w`."""
    return torch.zeros_like(w)
