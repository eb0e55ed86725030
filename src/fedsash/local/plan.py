"""How much clients train in a round: all that follows from the settings and from their numbers of samples."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints, Vectors
from ..basics.randomness import Purpose, fold, fractions, keys
from ..exchange import Effort, Request
from ..methods import FedAvg, Method
from ..methods.base import MEAN_DIRECTION
from ..schedules import LocalSchedule
from ..settings.errors import check
from .batches import Batching
from .optimisers import SGD
from .settings import LocalTraining

KEPT = 64
"""At most so many plans are kept."""

FLOAT64 = torch.empty(0, dtype=torch.float64)


class RoundPlan:
    """How much C clients train in a round, `[C]` each.

    A client has `sizes` samples, and trains by `amounts`: epochs or steps. It takes `steps` local steps, `per_epoch` of
    them in each pass over its samples, and sees `samples` samples in them; a sample that it sees in two passes counts
    twice. `all_steps` and `all_samples` also count those of a personal part that first trains by itself, for `alone`
    passes.

    `local` are the settings in the round (see `LocalTraining.at`). `like` gives the type and device of tensors.
    """

    def __init__(
        self,
        local: LocalTraining,
        method: Method,
        sizes: Ints,
        amounts: Ints,
        *,
        alone: int = 0,
        normalises: bool = False,
        like: Tensor = FLOAT64,
    ) -> None:
        work = local.batching.workload(sizes, amounts)
        work_alone = whole_passes(local).workload(sizes, alone)
        self.sizes = sizes
        self.amounts = amounts
        self.steps = work.steps
        self.per_epoch = work.per_epoch
        self.samples = work.samples
        self.steps_alone = work_alone.steps
        self.all_steps = work.steps + work_alone.steps
        self.all_samples = work.samples + work_alone.samples
        self._local = local
        self._method = method
        self._normalises = normalises
        self._like = like

    @classmethod
    def mean(cls, local: LocalTraining, method: Method, sizes: Ints, *, alone: int = 0) -> RoundPlan:
        """The plan of clients that train by the mean amount of a round, rounded."""
        return cls(local, method, sizes, np.full_like(sizes, mean_amount(local)), alone=alone)

    @cached_property
    def rates(self) -> Floats:
        """The learning rates of the steps, `[K, C]`; 0 after a client's last step."""
        return rates(self._local, self._method, self.steps)

    @cached_property
    def step_rates(self) -> Tensor:
        """The rates as a tensor `[K, C, 1]`."""
        return self.column(self.rates)

    @cached_property
    def rates_alone(self) -> Floats:
        """The same for the steps of a personal part that trains by itself: the method's schedule is not its own."""
        return rates(self._local, FedAvg(), self.steps_alone)

    @cached_property
    def rate_sum(self) -> Floats:
        """The sum of each client's rates."""
        total: Floats = self.rates.sum(axis=0)
        return total

    @cached_property
    def reach(self) -> Floats:
        """The sum of the weights with which the directions of each client's SGD steps enter its update.

        Without momentum it is the sum of the rates. Raises `SettingError` if there is no such sum.
        """
        self._local.check_divides(MEAN_DIRECTION)
        return reach(self._local, self._method, self.steps) if self._local.momentum else self.rate_sum

    @cached_property
    def effort(self) -> Effort:
        """What clients report, with FedNova's normalisers if the aggregation needs them."""
        normaliser = normalisers(self._local, self._method, self.steps) if self._normalises else None
        return Effort(self.all_samples, self.steps, normaliser)

    @cached_property
    def columns(self) -> Vectors:
        """The fields of a `LocalRun`, `[C, 1]` each."""
        return {
            "size": self.column(self.sizes),
            "steps": self.column(self.steps),
            "per_epoch": self.column(self.per_epoch),
            "samples": self.column(self.samples),
            "lr_sum": self.column(self.rate_sum),
        }

    def column(self, values: Ints | Floats) -> Tensor:
        """Numbers `[..., C]` as a tensor `[..., C, 1]`."""
        return torch.from_numpy(values.copy()).to(self._like).unsqueeze(-1)


class RoundPlans:
    """Makes the plans of requests to train, each once for the same settings, sizes and amounts."""

    def __init__(
        self,
        local: LocalTraining,
        method: Method,
        *,
        seed: int,
        alone: int = 0,
        normalises: bool = False,
        like: Tensor = FLOAT64,
    ) -> None:
        self._local = local
        self._method = method
        self._seed = seed
        self._alone = alone
        self._normalises = normalises
        self._like = like
        self._finished: int | None = None
        self._local_now = local
        # Most rounds repeat the plans of earlier ones. For a small client, plans of its own in every round would take
        # longer than its steps.
        self._kept: dict[tuple[bytes, bytes], RoundPlan] = {}

    def of(self, request: Request, sizes: Ints) -> RoundPlan:
        """The plan of the clients of a request to train, which have `sizes` `[C]` samples."""
        local = self._at(request.finished)
        amounts = drawn_amounts(local, request.round, request.ids, self._seed)
        key = (sizes.tobytes(), amounts.tobytes())
        plan = self._kept.get(key)
        if plan is None:
            plan = RoundPlan(
                local,
                self._method,
                sizes,
                amounts,
                alone=self._alone,
                normalises=self._normalises,
                like=self._like,
            )
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = plan
        return plan

    def effort(self, request: Request, sizes: Ints) -> Effort:
        """The effort of the clients of a request, which have `sizes` `[C]` samples; none unless they train."""
        if request.job == "train":
            return self.of(request, sizes).effort
        none = np.zeros(len(request.ids), dtype=np.int64)
        return Effort(none, none)

    def _at(self, finished: int) -> LocalTraining:
        """The settings after so many rounds; plans that were made with other ones are dropped."""
        if finished != self._finished:
            local = self._local.at(finished)
            if local is not self._local_now:
                self._kept.clear()
            self._finished = finished
            self._local_now = local
        return self._local_now


def whole_passes(local: LocalTraining) -> Batching:
    """How a client's samples are cut into batches where training is counted in whole passes."""
    return replace(local.batching, by_steps=False)


def drawn_amounts(local: LocalTraining, round: int, ids: Ints, seed: int) -> Ints:
    """How many epochs, or steps, each of the clients `ids` `[C]` trains in `round` (from 0), `[C]`."""
    least, most = local.amount_range
    if local.equal:
        return np.full_like(ids, least)
    drawn = [fractions(fold(keys(seed, Purpose.WORKLOAD, round, ids), i)) for i in range(3)]
    amounts = least + np.floor(drawn[0] * (most - least + 1))
    fewer = 1 + np.floor(drawn[2] * amounts)
    return np.where(drawn[1] < local.stragglers, fewer, amounts).astype(np.int64)


def mean_amount(local: LocalTraining) -> int:
    """The mean number of epochs, or steps, of a client in a round, rounded."""
    mean = sum(local.amount_range) / 2
    mean -= local.stragglers * (mean - 1) / 2
    return max(round(mean), 1)


def rates(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """The learning rates `[K, C]` of clients that take `steps` `[C]` steps; 0 after a client's last step."""
    return local.lr * _factors(local, method, steps)


def reach(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """The sum `[C]` of the weights with which the directions of `steps` `[C]` SGD steps enter a client's update.

    It is how far directions of 1 take a client; without `momentum` that is the sum of the rates.
    """
    return local.lr * _moved(local, method, steps, 0.0)


def normalisers(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """FedNova's normalisers a_i `[C]` of clients that take `steps` `[C]` steps.

    a_i is the sum of the weights, in units of `lr`, with which a client's gradients enter its update. It is how far
    gradients of 1 take a client, with its optimiser's momentum, the method's proximal term, and the schedules within a
    round. Weight decay is left out, as published.
    """
    return _moved(local, method, steps, method.proximal * local.lr)


def _moved(local: LocalTraining, method: Method, steps: Ints, pull: float) -> Floats:
    """How far `steps` `[C]` steps along 1 take each client, in units of `lr`, `[C]`.

    `pull` times that way is added to the direction of each step.
    """
    assert isinstance(local.optimiser, SGD)
    optimiser = replace(local.optimiser, weight_decay=0.0)
    below = torch.zeros(len(steps), 1, dtype=torch.float64)
    moments = optimiser.moments(below)
    for k, factor in enumerate(torch.from_numpy(_factors(local, method, steps)).unsqueeze(-1)):
        optimiser.advance(below, moments, 1 + pull * below, factor, k + 1)
    return -below[:, 0].numpy()


def _factors(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """The factors of the schedules within a round on the learning rate of each step, `[K, C]`."""
    k = np.arange(steps.max())[:, None]
    schedules = [local.local_schedule]
    if method.local_schedule is not None:
        schedules.append(method.local_schedule)
    product = np.prod([_factors_of(schedule, k, steps) for schedule in schedules], axis=0)
    return np.where(k < steps, product, 0.0)


def _factors_of(schedule: LocalSchedule, k: Ints, steps: Ints) -> Floats:
    """The factors `[K, C]` of one schedule; raises `SettingError` for others than finite ones of at least 0."""
    place = f"{type(schedule).__name__}.factors"
    shape = (len(k), len(steps))
    factors = np.asarray(schedule.factors(k, steps))
    fits = factors.dtype.kind in "fiub" and factors.ndim <= 2
    fits = fits and all(n in (1, m) for n, m in zip(factors.shape[::-1], shape[::-1], strict=False))
    check(fits, f"{place}: shape", list(factors.shape), f"must be numbers of a shape that fits {list(shape)}")
    whole = np.broadcast_to(factors, shape)
    used = whole[k < steps]
    wrong = used[~(np.isfinite(used) & (used >= 0))]
    check(wrong.size == 0, place, float(wrong[0]) if wrong.size else None, "must be finite and at least 0")
    return whole
