"""Metrics of all samples of a set together: functions, and those of torchmetrics."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial
from math import nan
from typing import Any, ClassVar
from warnings import catch_warnings, simplefilter

from torch import Tensor

from ..settings.errors import SettingError, check, library, one_line
from .base import Task
from .metrics import Better, Metric


@dataclass(frozen=True)
class Together(Metric):
    """A metric of all samples of a set together, such as the area under a curve: `function(output, y)` gives a number.

    `output` is what counts of the model's output. On held-out data it is the mean of the clients' own values, weighted
    by their samples, since outputs do not leave the clients. A client for whom the function gives NaN is left out.
    """

    function: Callable[[Tensor, Tensor], Any]
    """the function of outputs and labels that gives the number"""
    direction: Better = "higher"
    """whether a higher or a lower number is better"""
    together: ClassVar[bool] = True

    @property
    def better(self) -> Better:  # type: ignore[override]
        return self.direction

    def of(self, output: Tensor, y: Tensor) -> float:
        return float(self.function(output, y))


@dataclass(frozen=True)
class TorchMetric(Metric, name="torchmetrics"):
    """A metric of the library torchmetrics; `metric` names its class.

    It is a metric of all samples together, as `Together` says, and takes probabilities where the task's outputs are
    those of classes. Raises `LibraryError` without torchmetrics.
    """

    metric: str
    """the name of the metric's class in torchmetrics, such as `classification.BinaryAUROC`"""
    options: dict[str, Any] = field(default_factory=dict)
    """the arguments of the metric's class"""
    direction: Better | None = None
    """whether a higher or a lower number is better, only where torchmetrics does not say it"""
    together: ClassVar[bool] = True
    _torchmetric: Any = field(init=False, default=None, repr=False, compare=False)
    """The object of torchmetrics."""
    _chances: Any = field(init=False, default=None, repr=False, compare=False)
    """What the task makes of outputs for it."""

    def __post_init__(self) -> None:
        with library("torchmetrics", "these metrics", "fedsash[metrics]"):
            import torchmetrics
        cls: Any = torchmetrics
        for name in self.metric.split("."):
            cls = getattr(cls, name, None)
        is_metric = isinstance(cls, type) and issubclass(cls, torchmetrics.Metric)
        requirement = "must be a class of torchmetrics, such as classification.BinaryAUROC"
        check(is_metric, "TorchMetric.metric", self.metric, requirement)
        try:
            object.__setattr__(self, "_torchmetric", cls(**self.options))
        except (TypeError, ValueError) as error:
            raise SettingError("TorchMetric", "options", self.options, one_line(error)) from error
        known = better_of(self._torchmetric)
        if known is None:
            requirement = "must be 'higher' or 'lower': torchmetrics does not say which is better"
            check(self.direction is not None, "TorchMetric.direction", self.direction, requirement)
        else:
            requirement = f"must be left out: torchmetrics says {known}"
            check(self.direction is None, "TorchMetric.direction", self.direction, requirement)

    @property
    def better(self) -> Better:  # type: ignore[override]
        return better_of(self._torchmetric) or self.direction or "higher"

    def for_task(self, task: Task) -> TorchMetric:
        """The same metric for the outputs of a task.

        Raises `SettingError` if it counts a label that the task ignores.
        """
        _check_ignored(self._torchmetric, task, self.metric)
        metric = copy(self)
        object.__setattr__(metric, "_chances", task.chances)
        return metric

    def of(self, output: Tensor, y: Tensor) -> float:
        return computed(self._torchmetric, self._chances or Tensor.clone, output, y)


MEANINGLESS = ("No positive samples", "No negative samples")
"""How torchmetrics' warnings begin that a number is meaningless."""


def better_of(metric: Any) -> Better | None:
    """The direction of an object of torchmetrics, `higher_is_better` of its class; None if it does not say."""
    higher_is_better = metric.higher_is_better
    if higher_is_better is None:
        return None
    return "higher" if higher_is_better else "lower"


def computed(metric: Any, chances: Callable[[Tensor], Tensor], output: Tensor, y: Tensor) -> float:
    """The number that an object of torchmetrics gives for these samples. The object itself does not change.

    It takes `chances` of the outputs: outputs themselves it would take for probabilities wherever all of a set happen
    to lie in [0, 1]. Where a class has no samples some metrics give 0 for it, and warn that this is meaningless: then
    the number is NaN.
    """
    metric = deepcopy(metric)
    metric.reset()
    if not _lacks_a_class(metric, y):
        metric.update(chances(output), y)
        return float(metric.compute())
    with catch_warnings(record=True) as warnings:
        simplefilter("always")
        metric.update(chances(output), y)
        value = float(metric.compute())
    if any(str(warning.message).startswith(MEANINGLESS) for warning in warnings):
        return nan
    return value


def _lacks_a_class(metric: Any, y: Tensor) -> bool:
    """Whether a class has no samples. One that has no weight then, as in a weighted mean, matters only if all do."""
    if y.is_floating_point():
        return False
    average = getattr(metric, "average", "macro")
    classes = 2
    if average not in ("micro", "weighted"):
        classes = getattr(metric, "num_classes", None) or 2
    each_label_counts = hasattr(metric, "num_labels") and average != "micro"
    columns = y.flatten(1).T if each_label_counts else y.flatten()[None]
    ignored = getattr(metric, "ignore_index", None)
    for column in columns:
        if ignored is not None:
            column = column[column != ignored]
        if len(column.unique()) < classes:
            return True
    return False


def as_metric(metric: Any, name: str, task: Task) -> Metric:
    """A metric of a task from what users name: a `Metric`, an object of torchmetrics, or a function of (output, y)."""
    if isinstance(metric, TorchMetric):
        return metric.for_task(task)
    if isinstance(metric, Metric):
        return metric
    place = f"metrics.{name}"
    if hasattr(metric, "update") and hasattr(metric, "compute"):
        better = better_of(metric)
        if better is None:
            requirement = 'does not say what is better: Together(function, "lower") does, or "higher"'
            raise SettingError.at(place, metric, requirement)
        _check_ignored(metric, task, place)
        return Together(partial(computed, metric, task.chances), better)
    is_function = callable(metric) and not isinstance(metric, type)
    requirement = "must be a Metric, an object of torchmetrics, or a function of (output, y) that returns a number"
    check(is_function, place, metric, requirement)
    return Together(metric)


def _check_ignored(metric: Any, task: Task, place: str) -> None:
    """Raise `SettingError` for a metric of torchmetrics that takes the label that the task ignores for a class."""
    ignored = task.ignored_label
    is_no_class = ignored is None or ignored < 0
    if is_no_class or not type(metric).__module__.startswith("torchmetrics."):
        return
    requirement = f"must ignore the label {ignored}, as the task does: ignore_index = {ignored}"
    check(getattr(metric, "ignore_index", None) == ignored, place, metric, requirement)
