"""The base class of federated methods: what is sent, the local step, what is remembered, what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from ..settings.errors import SettingError
from ..settings.setting import Setting
from ..vector.arrays import Floats, Ints, Vectors, check_like
from ..vector.layout import Layout
from ..vector.shown import Shown
from ..vector.spaces import CommonPart, MeanUpload, ServerState
from .schedules import LocalSchedule

Upload = Vectors
"""Vectors that clients send: `"delta"` = w_local - w_sent `[C, D]`, and others whose mean the method needs."""

Scalar = float | Tensor
"""One number for each client: a float for a single client, a tensor `[C, 1]` for a block."""

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

    - `w` `[C, D]`: the clients' models before the step; `sent` `[D]`: the model that they received;
    - `lr`: the learning rate of the step;
    - `server_state`: the method's vectors as the server sent them; `client_state` `[C, ...]`: the vectors that clients
      remember between rounds; `round_state` `[C, ...]`: vectors of this round only (see `Method.round_state`);
    - `y` `[C, B, ...]`: the labels of the batch;
    - `weights` `[C, B]`: the weights of its samples. They sum to 1 for each client, or to 0 if it has no steps left.
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
    """`grad(w)`: the gradient `[C, D]` of each client's mean loss over this step's batch at any `w` `[C, D]`. Every
    call uses the same samples, the same augmentation and the same dropout."""
    grad_at_sent: Callable[[], Tensor]
    """`grad_at_sent()`: the same at `sent`. What stays with a client is as it received it, as in a probe."""
    features: Callable[[], Tensor]
    """`features()`: the inputs of the classifier in the last call of `grad`, `[C, B, d]`. Needs an `objective`."""


@dataclass(frozen=True, eq=False, repr=False)
class Effort(Shown):
    """The amount of training that clients report: the number of `samples` `[b]` and of local `steps` `[b]`.

    Samples of a personal part that trains alone count, its steps don't: they move nothing that is sent. `normaliser`
    `[b]` are FedNova's a_i, if the aggregation needs them (see `client.plan.normalisers`).
    """

    samples: Ints
    steps: Ints
    normaliser: Floats | None = None

    def only(self, rows: list[int]) -> Effort:
        """The effort of some of the clients, in the order of `rows`."""
        normaliser = None if self.normaliser is None else self.normaliser[rows]
        return Effort(self.samples[rows], self.steps[rows], normaliser)


@dataclass(kw_only=True)
class LocalRun:
    """The local training of C clients in one round, before its first step or after its last.

    - `round`: the index of the round, from 0;
    - `w` `[C, D]`: the clients' models; `sent` `[D]`: the model that they received;
    - for each client, `[C, 1]` each: `size`, its number of samples; `steps`, its local steps in this round;
      `per_epoch`, its steps in one pass over its samples; `samples`, how many samples it sees in all its steps;
      `lr_sum`, the sum of the learning rates of its steps (steps * lr if the rate is constant);
    - `server_state`, `client_state`, `round_state`: as in `Step`.
    """

    round: int
    w: Tensor
    sent: CommonPart
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
    """`full_grad(w)`: the gradient `[C, D]` of each client's mean loss over all its samples at `w` `[C, D]`. What stays
    with a client is as it received it."""
    reach: Callable[[], Tensor]
    """`reach()`: the sum `[C, 1]` of the weights with which the directions of each client's SGD steps enter its update.
    It is `lr_sum` without local momentum."""

    @property
    def delta(self) -> Tensor:
        """The clients' updates w - sent, `[C, D]`."""
        return self.w - self.sent

    def mean(self, total: Tensor) -> Tensor:
        """A vector's mean `[C, D]` over the steps, weighted by their rates, from `total` = sum_k lr_k * v_k.

        It is 0 if all rates were 0.
        """
        return divided(total, self.lr_sum)

    @property
    def direction(self) -> Tensor:
        """The mean direction `[C, D]` that each client followed with SGD: -delta / reach().

        With local momentum m a step of direction 1 at rate lr moves a client by lr * (1 + m + m^2 + ...) in the steps
        to come; the sum of the rates alone would give up to 1/(1-m) times the mean, and such methods would diverge.
        """
        return -divided(self.delta, self.reach())


def divided(total: Tensor, by: Tensor) -> Tensor:
    """total `[C, D]` / by `[C, 1]`, and 0 where both are 0."""
    return total / by.clamp(min=torch.finfo(by.dtype).tiny)


@dataclass(kw_only=True)
class RoundMean:
    """The result of a round's uploads at the server.

    - `sent` `[D]`: the model that the clients received;
    - `update` `[D]`: the update that the aggregation made of the deltas: by default their mean;
    - `mean`: the mean uploads of `clients` (s) clients out of `total` (N);
    - `server_state`: the method's server state, and the means of a `probe` if there was one.
    """

    sent: CommonPart
    update: Tensor
    mean: MeanUpload
    server_state: Vectors
    clients: int
    total: int


@dataclass(frozen=True)
class Method(Setting):
    """The base class of federated methods; it is FedAvg. A method overrides only what it changes."""

    _: KW_ONLY
    weighting: Weighting = "samples"
    """how the s uploads of a round are averaged: "samples", with p_i = n_i / sum of n_j over the clients that answered;
    "uniform", with 1/s"""

    uniform: ClassVar[tuple[str, ...]] = ()
    """Uploads that are averaged uniformly, whatever the `weighting`."""
    needs_classes: ClassVar[bool] = False
    """Whether its `objective` needs one class for each sample, and the last linear layer that gives them."""
    overridden: ClassVar[frozenset[Hook]] = frozenset()
    """The hooks that the method overrides, found when its class is made."""

    def __init_subclass__(cls, **names: Any) -> None:
        super().__init_subclass__(**names)
        cls.overridden = frozenset(hook for hook in get_args(Hook) if getattr(cls, hook) is not getattr(Method, hook))

    def server_state(self, w: CommonPart, layout: Layout) -> Vectors:
        """The server state before the first round, given the initial model `w` `[D]`."""
        return {}

    def client_state(self, w: CommonPart) -> Vectors:
        """The client state of one client before its first round, given the initial model `w` `[D]`."""
        return {}

    def send(self, w: CommonPart, server_state: ServerState, round: int) -> tuple[Tensor, Vectors]:
        """The model `[D]` from which the clients of `round` (from 0) start, and the vectors that they get with it.

        `w` `[D]` is the global model, or the average that is broadcast in its place.
        """
        return w, server_state

    def probe(self, local: LocalRun) -> Upload:
        """The upload of each client in a request before the training; its mean is added to `server_state`.

        Clients have received the model alone: `local.server_state` is empty.
        """
        return {}

    def round_state(self, local: LocalRun) -> Vectors:
        """Vectors `[C, ...]` that clients use in this round only; local steps may change them in place."""
        return {}

    def direction(self, step: Step) -> Tensor:
        """The direction `[C, D]` that the local optimiser follows downhill; here the plain gradient."""
        return step.grad(step.w)

    def objective(self, features: Tensor, y: Tensor, weights: Tensor, server_state: Vectors) -> Tensor:
        """A term to add to one client's loss over a batch, from its `features` `[B, d]`, labels and weights `[B]`.

        Samples of weight 0 are padding. If the term depends on them, clients train one at a time.
        """
        raise NotImplementedError

    def after_step(self, step: Step) -> None:
        """What to do after a local step, in place."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        """The upload of each client `[C, ...]`, and its new client state `[C, ...]`."""
        return {"delta": local.delta}, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        """The update `[D]` that the server optimiser gets, and the new server state."""
        return received.update, received.server_state

    @property
    def proximal(self) -> float:
        """The strength mu of a proximal term: mu * (w - sent) in the direction. FedNova needs it."""
        return 0.0

    @property
    def divides_updates(self) -> bool:
        """Whether a client's update, divided by its steps' weights in it, is taken for a mean gradient."""
        return False

    @property
    def why_sgd(self) -> str:
        """Why clients must step by SGD, to follow "must be sgd: "; empty if any local optimiser will do."""
        return MEAN_DIRECTION if self.divides_updates else ""

    @property
    def full_gradients(self) -> bool:
        """Whether clients take gradients over all their samples, `LocalRun.full_grad`. BatchNorm needs to know it."""
        return False

    @property
    def local_schedule(self) -> LocalSchedule | None:
        """The method's own schedule of the learning rate within a round, or None. `LocalTraining` may add another."""
        return None


MEAN_DIRECTION = "the method takes a client's update, divided by its steps' weights in it, for a mean gradient"
"""Why a method that divides updates needs SGD, as `LocalRun.direction` does."""


_REMEMBERED = {
    "upload": ("client state", "client_state"),
    "server_update": ("server state", "server_state"),
    "release": ("memory", "init"),
    "step": ("state", "init"),
}
"""What each hook that returns something to remember calls it, and the hook in which this begins."""


def check_returned(
    owner: object,
    hook: Literal["upload", "server_update", "release", "step"],
    vectors: Vectors,
    vector: str,
    like: Tensor,
    state: Vectors,
    before: Vectors,
) -> None:
    """Raise `SettingError` unless a hook of `owner` has returned the `vectors` that it must, and a `state` that fits.

    A vector called `vector` must be among them, with the shape and type of `like`; the state must have the names,
    shapes and types that it had `before`.
    """
    place = f"{type(owner).__name__}.{hook}"
    if vector not in vectors:
        raise SettingError.at(place, sorted(vectors), f"must return a vector called {vector!r}")
    check_like(owner, f"{hook}: {vector}", vectors[vector], like)
    remembered, begins = _REMEMBERED[hook]
    if not isinstance(state, Mapping):
        raise SettingError.at(place, type(state).__name__, f"must return the new {remembered}, a dictionary of tensors")
    for name in state.keys() & before.keys():
        check_like(owner, f"{hook}: {name}", state[name], before[name])
    if state.keys() == before.keys():
        return
    lost = _quoted(before.keys() - state.keys())
    if lost:
        raise SettingError.at(place, sorted(state), f"must also return the new {remembered} {lost}")
    added = _quoted(state.keys() - before.keys())
    raise SettingError.at(place, sorted(state), f"{added} must begin in {begins}(), which does not have it")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(repr, names)))
