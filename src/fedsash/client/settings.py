"""The settings of local training: how a client moves on its own samples, and how these are cut into batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from ..methods import Aggregation, Method
from ..methods.schedules import Constant, Flat, LocalSchedule, Schedule
from ..settings.errors import LONGEST, check, check_count
from ..settings.limits import Count, Epochs, Positive, Share, Strength
from ..settings.setting import Accepts, Setting, default
from ..vector.arrays import Ints
from .optimisers import SGD, Optimiser

Amount: TypeAlias = Epochs | tuple[int, int]
"""A number of epochs or steps, or a range [least, most]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """The amount of local training of C clients in a round, `[C]` each.

    A client has `size` samples, in batches of up to `batch`. It takes `steps` local steps, `per_epoch` of them in each
    pass over its samples. It sees `samples` samples in all its steps; a sample that it sees in two passes counts twice.
    """

    size: Ints
    batch: Ints
    steps: Ints
    per_epoch: Ints
    samples: Ints


@dataclass(frozen=True)
class Batching:
    """How a client's samples are cut into batches; it depends only on their number.

    Batches hold `batch` samples (`"full"`: all of them). The last, smaller batch of a pass is kept, or dropped with
    `drop_last`. A client with fewer samples than one batch always keeps it, since otherwise it would not train. Amounts
    of training are numbers of whole passes, or with `by_steps` of steps, in as many passes as they need.
    """

    batch: int | str
    by_steps: bool
    drop_last: bool

    def single(self, sizes: Ints) -> Ints:
        """The clients with `sizes` `[N]` samples that have a batch of one sample."""
        batch = self.workload(sizes, 1).batch
        last_is_single = sizes % batch == 1
        if self.drop_last:
            last_is_single &= sizes == 1
        return np.flatnonzero((batch == 1) | last_is_single)

    def workload(self, sizes: Ints, amounts: Ints | int) -> Workload:
        """The workload of clients with `sizes` `[C]` samples that train by these `amounts` `[C]`."""
        batch = sizes if self.batch == "full" else np.full_like(sizes, int(self.batch))
        rounded_up = -(-sizes // batch)
        per_epoch = np.maximum(sizes // batch, 1) if self.drop_last else rounded_up
        steps = np.full_like(sizes, amounts) if self.by_steps else per_epoch * amounts
        per_pass = np.minimum(sizes, per_epoch * batch)
        whole_passes, steps_left = np.divmod(steps, per_epoch)
        samples = whole_passes * per_pass + np.minimum(steps_left * batch, per_pass)
        return Workload(size=sizes, batch=batch, steps=steps, per_epoch=per_epoch, samples=samples)


@dataclass(frozen=True)
class LocalTraining(Setting):
    """The local training of every client: steps of an optimiser on its own samples.

    In step k = 0, ..., K - 1 of round t, with d_k `[D]` the direction that the method makes of a batch's mean gradient,

        w <- w - lr_t * f_k * u(d_k)

    where u is the `optimiser`'s rule (plain SGD: d_k itself), lr_t the rate by `schedule` and f_k the factor of
    `local_schedule`, by default `lr` and 1. A client with n samples takes K = `epochs` * ceil(n / `batch`) steps, or
    `steps`.
    """

    lr: Strength = 0.1
    """the learning rate"""
    batch: Count | Literal["full"] = 32
    """how many samples a step takes, or "full" for all of a client's"""
    epochs: Accepts[Amount, list[int]] = default(1)
    """how many passes a round has over the client's samples. A range such as [2, 5] is drawn from, uniformly, for each
    client and round (FedNova's study)"""
    steps: Accepts[Amount | None, list[int]] = default(None)
    """how many steps a round has, in place of `epochs`; a number or a range"""
    stragglers: Share = 0.0
    """the probability that a client is a straggler of a round. Then it takes a number that is drawn from 1 to the one
    that it would take (FedProx's study, in which they are an exact share)"""
    optimiser: Optimiser = field(default_factory=SGD)
    """how a step moves the model along the direction that the method gives"""
    keep_moments: bool = False
    """whether the optimiser's moments are client state, so a client continues from those of its last round. Otherwise
    they begin anew in every round, as in the codes of FedJAX, FedDyn and FedIMA"""
    clip: Positive | None = None
    """the norm to which the direction is clipped"""
    drop_last: bool = False
    """whether the last, smaller batch of a pass is left out; clients with less than one batch keep it"""
    schedule: Schedule = field(default_factory=Constant)
    """how the rate changes by round"""
    local_schedule: LocalSchedule = field(default_factory=Flat)
    """how the rate changes within a round"""

    def __post_init__(self) -> None:
        for name in ("optimiser", "schedule", "local_schedule"):
            setting = getattr(self, name)
            requirement = "must be a frozen dataclass, @dataclass(frozen=True): settings are compared"
            check(type(setting).__hash__ is not None, f"LocalTraining.{name}", setting, requirement)
        _check_range("LocalTraining.epochs", self.epochs)
        _check_range("LocalTraining.steps", self.steps)
        if not isinstance(self.epochs, int):
            requirement = "must be one number with a schedule of epochs"
            check(not self.schedule.moves_epochs, "LocalTraining.epochs", self.epochs, requirement)
        if self.steps is not None:
            alone = self.epochs == 1 and not self.schedule.moves_epochs
            requirement = "can't be combined with epochs, or with a schedule of epochs: set either steps or epochs"
            check(alone, "LocalTraining.steps", self.steps, requirement)

    def fits(self, method: Method, aggregation: Aggregation) -> None:
        """Raise `SettingError` if the method or the aggregation rests on another local optimiser, or if there can be no
        stragglers."""
        if self.stragglers > 0:
            most = self.amount_range[1]
            requirement = "has no effect on clients that train by 1: set epochs or steps above 1"
            can_do_less = most > 1 or self.schedule.moves_epochs
            check(can_do_less, "LocalTraining.stragglers", self.stragglers, requirement)
        why = method.why_sgd
        if aggregation.normalises:
            why = why or "FedNova's normalisers follow its steps"
        if aggregation.normalises or method.divides_updates:
            self.check_divides(why)
        elif why:
            self._check_sgd(why)

    def check_divides(self, why: str) -> None:
        """Raise `SettingError` unless an update, divided by its steps' weights, is the mean of this round's directions.

        `why` says who takes it for that.
        """
        self._check_sgd(why)
        if self.momentum:
            requirement = f"must be false, because an update has the gradients of earlier rounds: {why}"
            check(not self.keep_moments, "LocalTraining.keep_moments", self.keep_moments, requirement)

    def _check_sgd(self, why: str) -> None:
        """Raise `SettingError` unless the optimiser is SGD; `why` says who rests on it."""
        check(isinstance(self.optimiser, SGD), "LocalTraining.optimiser", self.optimiser, f"must be sgd: {why}")

    @property
    def batching(self) -> Batching:
        """How a client's samples are cut into batches."""
        return Batching(self.batch, self.steps is not None, self.drop_last)

    def single(self, sizes: Ints, method: Method) -> tuple[Ints, str]:
        """The clients with `sizes` `[N]` samples that have a batch of one sample, and which settings prevent it."""
        if method.full_gradients:  # they are over all samples, in batches of this size
            return replace(self.batching, drop_last=False).single(sizes), "another local.batch"
        return self.batching.single(sizes), "local.drop_last or another local.batch"

    @property
    def amount_range(self) -> tuple[int, int]:
        """The least and the most epochs, or steps, of a client in a round, if none is a straggler."""
        amount = self.epochs if self.steps is None else self.steps
        if isinstance(amount, int):
            return amount, amount
        return amount

    @property
    def equal(self) -> bool:
        """Whether all clients train by the same amount in a round, the same number of epochs or of steps."""
        least, most = self.amount_range
        return least == most and self.stragglers == 0

    @property
    def momentum(self) -> bool:
        """Whether a client moves along a step's direction in its later steps, too."""
        return isinstance(self.optimiser, SGD) and self.optimiser.momentum > 0

    def at(self, round: int) -> LocalTraining:
        """These settings with the learning rate and the epochs that `schedule` gives in `round` (from 0)."""
        if type(self.schedule) is Constant:
            return self
        lr, epochs = self.scheduled(round)
        return replace(self, lr=lr, epochs=epochs, schedule=Constant())

    def scheduled(self, round: int) -> tuple[float, Amount]:
        """The learning rate and the epochs that `schedule` gives in `round` (from 0)."""
        lr = self.schedule.lr(round, self.lr)
        if isinstance(self.epochs, int):
            return lr, self.schedule.epochs(round, self.epochs)
        return lr, self.epochs


def _check_range(field: str, amount: Amount | None) -> None:
    """Raise `SettingError` for a range that is out of order, or outside the limits of one number."""
    if isinstance(amount, tuple):
        least, most = amount
        check_count(field, least, most=LONGEST)
        check_count(field, most, most=LONGEST)
        check(least <= most, field, amount, "must be a range [least, most]")
