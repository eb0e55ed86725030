"""Metrics of all samples together: functions of one's own, and the library torchmetrics."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ..basics.arrays import Floats
from ..basics.errors import SettingError, check, library, one_line
from .metrics import Better, Metric, Scored, ratio


@dataclass(frozen=True)
class Together(Metric):
    """A metric of all samples of a set together, such as the area under a curve: `function(output, y)` gives a number.

    `output` is what counts of the model's output. On held-out data it is the mean of the clients' own values, weighted
    by their samples, since outputs do not leave the clients. A client for whom the function returns NaN is left out.
    """

    function: Callable[[Tensor, Tensor], Any]
    direction: Better = "higher"

    @property
    def better(self) -> Better:  # type: ignore[override]
        return self.direction

    def sums(self, scored: Scored) -> Tensor:
        """Not defined: a single sample has no such numbers."""
        raise NotImplementedError("use of(output, y)")

    def check_sums(self, scored: Scored) -> None:
        self.of(scored.output.cpu(), scored.y.cpu())

    def of(self, output: Tensor, y: Tensor) -> Floats:
        """The value for these samples times their number, and their number, `[2]`; zeros where it is not defined."""
        value = float(self.function(output, y)) if len(y) else np.nan
        return np.zeros(2) if np.isnan(value) else np.array([value * len(y), len(y)])

    def value(self, sums: Floats) -> Floats:
        return ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True)
class TorchMetric(Together):
    """A metric of the library torchmetrics: `metric` names its class, such as `"classification.BinaryAUROC"`.

    `options` are the arguments of this class. Raises `LibraryError` without torchmetrics.
    """

    function: Any = field(init=False, default=None, repr=False)
    direction: Any = field(init=False, default="higher", repr=False)
    metric: str = field(kw_only=True)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with library("torchmetrics", "these metrics", "fedsash[metrics]"):
            import torchmetrics
        made: Any = torchmetrics
        for part in self.metric.split("."):
            made = getattr(made, part, None)
        right = "must be a class of torchmetrics, such as classification.BinaryAUROC"
        known = isinstance(made, type) and issubclass(made, torchmetrics.Metric)
        check(known, "TorchMetric.metric", self.metric, right)
        try:
            found = of_torchmetrics(made(**self.options))
        except (TypeError, ValueError) as error:
            raise SettingError("TorchMetric", "options", self.options, one_line(error)) from error
        object.__setattr__(self, "function", found.function)
        object.__setattr__(self, "direction", found.direction)


@dataclass(frozen=True, eq=False)
class Computed:
    """A function of outputs and labels that computes an object of torchmetrics, which does not change."""

    metric: Any

    def __call__(self, output: Tensor, y: Tensor) -> float:
        own = deepcopy(self.metric)
        own.reset()
        own.update(output, y)
        return float(own.compute())


def of_torchmetrics(metric: Any) -> Together:
    """The metric for an object of torchmetrics. Its direction is `higher_is_better` of its class."""
    return Together(Computed(metric), "lower" if metric.higher_is_better is False else "higher")


def as_metric(given: Any, name: str) -> Metric:
    """A metric from what users give: a `Metric`, an object of torchmetrics, or a function of (output, y)."""
    if isinstance(given, Metric):
        return given
    if hasattr(given, "update") and hasattr(given, "compute"):
        return of_torchmetrics(given)
    right = "must be a Metric, an object of torchmetrics, or a function of (output, y) that returns a number"
    check(callable(given) and not isinstance(given, type), f"metrics.{name}", given, right)
    return Together(given)
