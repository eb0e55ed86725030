"""The settings of an evaluation: when models are scored, on what, and by which metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Interval

from ..data.samples import Samples
from ..settings.errors import check
from ..settings.limits import Count, EpochsFromZero, Remark, Strength
from ..settings.setting import Setting
from ..tasks import Task
from .goal import Goal

HeldOut: TypeAlias = Annotated[float, Interval(ge=0, le=0.9), Remark(": clients need samples to train on")]

Split = Literal["held_out", "client_test", "clients"]
"""The client samples on which a model is scored: held-out ones, its own test samples, or those on which it trains."""

SplitsOf: TypeAlias = Mapping[str, tuple[Split, ...]]
"""The splits that clients score in each job of an evaluation; a job without splits is not there."""


def tuned(split: str) -> str:
    """The name of a split in the results of models that clients have fine-tuned."""
    return f"{split}_tuned"


def scored(split: Split, name: str) -> str:
    """The name of the scores of a metric, or of the loss, that clients send for a split."""
    return f"{split}/{name}"


@dataclass(frozen=True)
class FineTuning(Setting):
    """Each client trains a copy of the model on its own training samples before it scores it.

    It trains with the optimiser and the batches of `LocalTraining`, along the plain gradient. Moments begin anew. The
    trained copy is thrown away.
    """

    epochs: EpochsFromZero = 1
    """how many passes a client trains over its samples; 0 leaves the model as it is"""
    steps: EpochsFromZero | None = None
    """how many steps a client trains, in place of `epochs`"""
    lr: Strength | None = None
    """the learning rate; left out: that of the last round"""

    def __post_init__(self) -> None:
        requirement = "can't be combined with epochs: set either steps or epochs"
        check(self.steps is None or self.epochs == 1, "FineTuning.steps", self.steps, requirement)

    @property
    def trains(self) -> bool:
        """Whether it takes any step."""
        if self.steps is not None:
            return self.steps > 0
        return self.epochs > 0


@dataclass(frozen=True)
class Evaluation(Setting):
    """When and on what the model and all averages are evaluated."""

    every: Count = 10
    """after how many rounds models are evaluated, and an adaptive broadcast decides"""
    last: Count = 10
    """after each of so many last rounds they are evaluated, too; means and standard deviations are over these"""
    metric: str = ""
    """the metric that decides; by default the first one that is given, or the task's first one"""
    target: float | None = None
    """the value of this metric whose first round is reported; an accuracy has the target 0.8 by default"""
    clients: bool = False
    """whether clients score models on the samples on which they train"""
    client_test: bool = False
    """whether clients score models on test samples of their own"""
    fine_tuning: FineTuning | None = field(default=None, metadata={"example": "FineTuning(epochs=2)"})
    """gives results on held-out and on clients' test samples twice, also for each client's own fine-tuned copy of the
    model"""
    batch: Count = 500
    """how many samples pass through the model at once"""
    held_out: HeldOut = 0.0
    """the fraction of each client's samples on which no client trains; models are compared on these samples, to choose
    between them"""
    calibration: Count = 1000
    """how many training samples, evenly spaced, give an average with `buffers = "re-estimate"` its statistics"""
    best_on: Literal["held_out", "test"] = "held_out"
    """where the best model of each name so far is chosen, which is kept as `NAME-best`: by default only on held-out
    samples. With "test" it is chosen on the test set, and its own value there is too good"""

    def __post_init__(self) -> None:
        check(self.target is None or isfinite(self.target), "Evaluation.target", self.target, "must be finite")

    def goal(self, task: Task, loss: Any = None, metrics: Mapping[str, Any] | None = None) -> Goal:
        """The goal of a training that is evaluated in this way; raises `SettingError` as `Goal.of` does."""
        return Goal.of(task, loss, metrics, decides=self.metric, target=self.target)

    def tests_clients(self, any_held_out: bool) -> bool:
        """Whether clients score models on samples that none of them trains on: held-out ones, if any, or test ones."""
        return any_held_out or self.client_test

    def tested(self, test: Samples | None, any_held_out: bool, personal: bool) -> Samples | None:
        """The samples on which the server scores models: the `test` set, unless clients score their `personal` parts.

        `any_held_out` says whether there are held-out samples. Raises `SettingError` if the best model is to be chosen
        on a test set that the server does not score.
        """
        if personal and self.tests_clients(any_held_out):
            test = None
        requirement = "needs a test set on which the server scores models: leave it out"
        check(self.best_on == "held_out" or test is not None, "evaluation.best_on", self.best_on, requirement)
        return test

    def client_splits(self, any_held_out: bool) -> SplitsOf:
        """The splits that clients score in each job; `any_held_out` says whether there are held-out samples.

        Raises `SettingError` if clients fine-tune models, and have no samples to score them on.
        """
        tested: list[Split] = []
        if any_held_out:
            tested.append("held_out")
        if self.client_test:
            tested.append("client_test")
        requirement = "needs samples that no client trains on: set evaluation.client_test or evaluation.held_out"
        check(self.fine_tuning is None or bool(tested), "evaluation.fine_tuning", self.fine_tuning, requirement)
        evaluated = [*tested]
        if self.clients:
            evaluated.append("clients")
        jobs: dict[str, tuple[Split, ...]] = {}
        if evaluated:
            jobs["evaluate"] = tuple(evaluated)
        if self.fine_tuning is not None:
            jobs["tune"] = tuple(tested)
        return jobs

    def due(self, round: int, rounds: int) -> bool:
        """Whether models are evaluated after `round` finished rounds of `rounds`."""
        return round % self.every == 0 or round > rounds - self.last
