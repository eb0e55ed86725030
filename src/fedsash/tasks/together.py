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
    _made: Any = field(init=False, default=None, repr=False, compare=False)
    _chances: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        with library("torchmetrics", "these metrics", "fedsash[metrics]"):
            import torchmetrics
        made: Any = torchmetrics
        for part in self.metric.split("."):
            made = getattr(made, part, None)
        valid = isinstance(made, type) and issubclass(made, torchmetrics.Metric)
        right = "must be a class of torchmetrics, such as classification.BinaryAUROC"
        check(valid, "TorchMetric.metric", self.metric, right)
        try:
            object.__setattr__(self, "_made", made(**self.options))
        except (TypeError, ValueError) as error:
            raise SettingError("TorchMetric", "options", self.options, one_line(error)) from error
        said = better_of(self._made)
        right = "must be 'higher' or 'lower': torchmetrics does not say which is better"
        right = f"must be left out: torchmetrics says {said}" if said else right
        check((said is None) == (self.direction is not None), "TorchMetric.direction", self.direction, right)

    @property
    def better(self) -> Better:  # type: ignore[override]
        return better_of(self._made) or self.direction or "higher"

    def for_task(self, task: Task) -> TorchMetric:
        """The same metric for the outputs of a task."""
        own = copy(self)
        object.__setattr__(own, "_chances", task.chances)
        return own

    def of(self, output: Tensor, y: Tensor) -> float:
        return computed(self._made, self._chances or Tensor.clone, output, y)


MEANINGLESS = ("No positive samples", "No negative samples")
"""How torchmetrics' warnings begin that a number is meaningless."""


def better_of(metric: Any) -> Better | None:
    """The direction of an object of torchmetrics, `higher_is_better` of its class; None if it does not say."""
    said = metric.higher_is_better
    return None if said is None else "higher" if said else "lower"


def computed(metric: Any, chances: Callable[[Tensor], Tensor], output: Tensor, y: Tensor) -> float:
    """The number that an object of torchmetrics gives for these samples. The object itself does not change.

    It takes `chances` of the outputs: outputs themselves it would take for probabilities wherever all of a set happen
    to lie in [0, 1]. Where a class has no samples some metrics give 0 for it, and warn that this is meaningless: then
    the number is NaN.
    """
    own = deepcopy(metric)
    own.reset()
    if not _lacks_a_class(own, y):
        own.update(chances(output), y)
        return float(own.compute())
    with catch_warnings(record=True) as said:
        simplefilter("always")
        own.update(chances(output), y)
        found = float(own.compute())
    return nan if any(str(warning.message).startswith(MEANINGLESS) for warning in said) else found


def _lacks_a_class(metric: Any, y: Tensor) -> bool:
    """Whether a class has no samples. One that has no weight then, as in a weighted mean, matters only if all do."""
    if y.is_floating_point():
        return False
    average = getattr(metric, "average", "macro")
    classes = 2 if average in ("micro", "weighted") else getattr(metric, "num_classes", None) or 2
    columns = y.flatten(1).T if hasattr(metric, "num_labels") and average != "micro" else y.flatten()[None]
    ignored = getattr(metric, "ignore_index", None)
    counted = (column if ignored is None else column[column != ignored] for column in columns)
    return any(len(column.unique()) < classes for column in counted)


def as_metric(given: Any, name: str, task: Task) -> Metric:
    """A metric of a task from what users give: a `Metric`, an object of torchmetrics, or a function of (output, y)."""
    if isinstance(given, TorchMetric):
        return given.for_task(task)
    if isinstance(given, Metric):
        return given
    if hasattr(given, "update") and hasattr(given, "compute"):
        better = better_of(given)
        right = 'does not say what is better: Together(function, "lower") does, or "higher"'
        if better is None:
            raise SettingError.at(f"metrics.{name}", given, right)
        return Together(partial(computed, given, task.chances), better)
    right = "must be a Metric, an object of torchmetrics, or a function of (output, y) that returns a number"
    check(callable(given) and not isinstance(given, type), f"metrics.{name}", given, right)
    return Together(given)
