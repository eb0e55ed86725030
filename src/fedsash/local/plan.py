"""How much clients train in a round: all that follows from the settings and from their numbers of samples."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints, Vectors
from ..basics.randomness import Purpose, fold, fractions, keys
from ..exchange import Effort, Request
from ..methods import FedAvg, Method
from ..methods.base import MEAN_DIRECTION
from ..settings.errors import check
from .batches import Batching, Workload
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
    passes. Both are in `work` and `work_alone` as workloads, from which batches are cut. `effort` is what clients
    report, with FedNova's normalisers if the aggregation `normalises`.

    `local` are the settings in the round (see `LocalTraining.at`). `like` gives the type and device of tensors; with
    `exact` the rates of the steps stay on the CPU as float64, for steps that take them as numbers. A plan of the `same`
    sizes and amounts, under other rates, lends its workloads, so that their batches need not be cut again.
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
        exact: bool = False,
        same: RoundPlan | None = None,
    ) -> None:
        self.local = local
        self.sizes = sizes
        self.amounts = amounts
        self.work: Workload = local.batching.workload(sizes, amounts) if same is None else same.work
        self.steps = self.work.steps
        self.per_epoch = self.work.per_epoch
        self.samples = self.work.samples
        self.steps_alone = np.zeros_like(sizes)
        self.all_steps = self.steps
        self.all_samples = self.samples
        if alone:
            work_alone = whole_passes(local).workload(sizes, alone) if same is None else same.work_alone
            self.work_alone: Workload = work_alone
            self.steps_alone = self.work_alone.steps
            self.all_steps = self.steps + self.work_alone.steps
            self.all_samples = self.samples + self.work_alone.samples
        normaliser = normalisers(local, method, self.steps) if normalises else None
        self.effort = Effort(self.all_samples, self.steps, normaliser)
        self._method = method
        self._like = like
        self._rates_like = FLOAT64 if exact else like

    @classmethod
    def mean(cls, local: LocalTraining, method: Method, sizes: Ints, *, alone: int = 0) -> RoundPlan:
        """The plan of clients that train by the mean amount of a round, rounded."""
        return cls(local, method, sizes, np.full_like(sizes, mean_amount(local)), alone=alone)

    @cached_property
    def rates(self) -> Floats:
        """The learning rates of the steps, `[K, C]`; 0 after a client's last step."""
        return self.local.lr * factors(self.local, self._method, self.steps)

    @cached_property
    def rates_alone(self) -> Floats:
        """The same for the steps of a personal part that trains by itself: the method's schedule is not its own."""
        return self.local.lr * factors(self.local, FedAvg(), self.steps_alone)

    @cached_property
    def step_rates(self) -> Tensor:
        """The rates of the steps as a tensor `[K, C, 1]`."""
        return column(self.rates, self._rates_like)

    @cached_property
    def step_rates_alone(self) -> Tensor:
        """Those of the steps of a personal part that trains by itself, `[K, C, 1]`."""
        return column(self.rates_alone, self._rates_like)

    @cached_property
    def reach(self) -> Tensor:
        """The sum `[C, 1]` of the weights with which the directions of each client's SGD steps enter its update.

        Without momentum it is the sum of the rates. Raises `SettingError` if there is no such sum.
        """
        self.local.check_divides(MEAN_DIRECTION)
        if not self.local.momentum:
            return self.columns["lr_sum"]
        return column(reach(self.local, self._method, self.steps), self._like)

    @cached_property
    def columns(self) -> Vectors:
        """The fields of a `LocalRun`, `[C, 1]` each."""
        numbers = {
            "size": self.sizes,
            "steps": self.steps,
            "per_epoch": self.per_epoch,
            "samples": self.samples,
            "lr_sum": self.rates.sum(axis=0),
        }
        return {name: column(values, self._like) for name, values in numbers.items()}

    @cached_property
    def taken(self) -> Tensor:
        """The steps that clients count between rounds: `[C, 1]`, or `[C, 2]` with those of a part that trains alone."""
        steps = self.columns["steps"]
        if not self.steps_alone.any():
            return steps
        return torch.cat([steps, column(self.steps_alone, self._like)], dim=1)


class RoundPlans:
    """Makes the plans of requests to train, each once for the same settings, sizes and amounts.

    `more` are the other arguments of a `RoundPlan`.
    """

    def __init__(self, local: LocalTraining, method: Method, *, seed: int, **more: Any) -> None:
        self._local_at = lru_cache(maxsize=1)(local.at)
        self._method = method
        self._seed = seed
        self._more = more
        # Most rounds repeat the plans of earlier ones. For a small client, plans of its own in every round would take
        # longer than its steps.
        self._kept: dict[tuple[bytes, bytes], RoundPlan] = {}

    def of(self, request: Request, sizes: Ints) -> RoundPlan:
        """The plan of the clients of a request to train, which have `sizes` `[C]` samples."""
        local = self._local_at(request.finished)
        amounts = drawn_amounts(local, request.round, request.ids, self._seed)
        key = (sizes.tobytes(), amounts.tobytes())
        plan = self._kept.get(key)
        if plan is None or plan.local is not local:
            plan = RoundPlan(local, self._method, sizes, amounts, same=plan, **self._more)
            if key not in self._kept and len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = plan
        return plan

    def effort(self, request: Request, sizes: Ints) -> Effort:
        """The effort of the clients of a request, which have `sizes` `[C]` samples; none unless they train."""
        if request.job == "train":
            return self.of(request, sizes).effort
        none = np.zeros(len(request.ids), dtype=np.int64)
        return Effort(none, none)


def column(values: Ints | Floats, like: Tensor) -> Tensor:
    """Numbers `[..., C]` as a new tensor `[..., C, 1]`, with the type and the device of `like`."""
    return torch.from_numpy(values.copy()).to(like).unsqueeze(-1)


def whole_passes(local: LocalTraining) -> Batching:
    """How a client's samples are cut into batches where training is counted in whole passes."""
    return replace(local.batching, by_steps=False)


def drawn_amounts(local: LocalTraining, round: int, ids: Ints, seed: int) -> Ints:
    """How many epochs, or steps, each of the clients `ids` `[C]` trains in `round` (from 0), `[C]`."""
    least, most = local.amount_range
    if least == most and local.stragglers == 0:
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
    for k, factor in enumerate(torch.from_numpy(factors(local, method, steps)).unsqueeze(-1)):
        optimiser.advance(below, moments, 1 + pull * below, factor, k + 1)
    return -below[:, 0].numpy()


def factors(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """The factors `[K, C]` of the schedules within a round on the learning rate of each step; 0 after a client's last.

    They are the product of the factors of the settings' schedule and of the method's own. Raises `SettingError` for
    other factors than finite ones of at least 0.
    """
    k = np.arange(steps.max())[:, None]
    shape = (len(k), len(steps))
    before_end = k < steps
    product = np.ones(shape)
    for schedule in (local.local_schedule, method.local_schedule):
        if schedule is None:
            continue
        place = f"{type(schedule).__name__}.factors"
        some = np.asarray(schedule.factors(k, steps))
        fits = some.dtype.kind in "fiub" and some.ndim <= 2
        fits = fits and all(n in (1, m) for n, m in zip(some.shape[::-1], shape[::-1], strict=False))
        check(fits, f"{place}: shape", list(some.shape), f"must be numbers of a shape that fits {list(shape)}")
        whole = np.broadcast_to(some, shape)
        used = whole[before_end]
        wrong = used[~(np.isfinite(used) & (used >= 0))]
        check(wrong.size == 0, place, float(wrong[0]) if wrong.size else None, "must be finite and at least 0")
        product = product * whole
    return np.where(before_end, product, 0.0)
