"""Metrics: numbers that say how good predictions are, computed from sums over samples or from all samples together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats
from ..basics.errors import SettingError, check, library
from ..basics.typed import typed

Better = Literal["higher", "lower"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Some samples and what a model says of them.

    `output` `[B, ...]` is what counts of the model's output, `predicted` are the predictions in the form of the labels
    `y`, and `counted` says which labels count. `losses` `[B]` are the losses.
    """

    output: Tensor
    predicted: Tensor
    y: Tensor
    counted: Tensor
    losses: Tensor


@typed
class Metric(ABC):
    """A number that says how good predictions are. A metric is a frozen dataclass that extends this class.

    `sums` gives k numbers for each sample. `value` makes the metric from their sums over any set of samples. So the
    same numbers serve the test set, the clients, and each class.
    """

    better: ClassVar[Better] = "higher"
    """Whether a higher or a lower number is better."""
    share: ClassVar[bool] = False
    """Whether it is a share in [0, 1], which is shown in per cent."""

    @abstractmethod
    def sums(self, scored: Scored) -> Tensor:
        """The numbers of each sample, `[B, k]`."""

    def check_sums(self, scored: Scored) -> None:
        """Compute the metric for a few samples, so that a mistake shows."""
        self.value(self.sums(scored).sum(0).double().cpu().numpy())

    @abstractmethod
    def value(self, sums: Floats) -> Floats:
        """The metric `[...]` from the sums `[..., k]` over samples. It is NaN where it is not defined."""


@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of right predictions among all that count. With `top`, the label is among the `top` highest outputs."""

    top: int = 1
    share: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self.top >= 1, "Accuracy.top", self.top, "must be at least 1")

    def sums(self, scored: Scored) -> Tensor:
        right = scored.predicted == scored.y
        if self.top > 1:
            right = (scored.output.topk(self.top).indices == scored.y.unsqueeze(-1)).any(-1)
        return torch.stack([_total(right & scored.counted), _total(scored.counted)], dim=1)

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True)
class _ByClass(Metric):
    """A share for each class from its right predictions, its wrong ones, and its labels that were missed: the mean over
    the classes that occur in labels or predictions. Labels of 0 and 1 have one class, the 1.
    """

    share: ClassVar[bool] = True

    def sums(self, scored: Scored) -> Tensor:
        one = scored.output.shape == scored.y.shape or scored.output.shape == (*scored.y.shape, 1)
        classes = None if one else scored.output.shape[1 if scored.output.dim() == 4 else -1]
        said, right = (_indicators(v, scored.counted, classes) for v in (scored.predicted, scored.y))
        counts = [said & right, said & ~right, right & ~said]
        return torch.cat([c.flatten(2).sum(-1) for c in counts], dim=1)

    def value(self, sums: Floats) -> Floats:
        hits, wrong, missed = np.split(sums, 3, axis=-1)
        found = self._of(hits, wrong, missed)
        occurs = hits + wrong + missed > 0
        return _ratio(np.where(occurs, found, 0.0).sum(-1), occurs.sum(-1))

    @abstractmethod
    def _of(self, hits: Floats, wrong: Floats, missed: Floats) -> Floats:
        """The share of each class."""


@dataclass(frozen=True)
class F1(_ByClass):
    """The F1 score, 2 hits / (2 hits + wrong + missed): the mean over classes (macro), or that of the class 1."""

    def _of(self, hits: Floats, wrong: Floats, missed: Floats) -> Floats:
        return _ratio(2 * hits, 2 * hits + wrong + missed)


@dataclass(frozen=True)
class MeanIoU(_ByClass):
    """Intersection over union, hits / (hits + wrong + missed): the mean over classes, as for segmentation."""

    def _of(self, hits: Floats, wrong: Floats, missed: Floats) -> Floats:
        return _ratio(hits, hits + wrong + missed)


@dataclass(frozen=True)
class MeanAbsoluteError(Metric):
    """The mean of |prediction - label| over all samples and targets."""

    better: ClassVar[Better] = "lower"

    def sums(self, scored: Scored) -> Tensor:
        errors = _errors(scored).abs()
        return torch.stack([errors.mean(1), torch.ones_like(errors[:, 0])], dim=1)

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True)
class RootMeanSquaredError(Metric):
    """The square root of the mean of (prediction - label)^2 over all samples and targets."""

    better: ClassVar[Better] = "lower"

    def sums(self, scored: Scored) -> Tensor:
        errors = _errors(scored)
        return torch.stack([errors.square().mean(1), torch.ones_like(errors[:, 0])], dim=1)

    def value(self, sums: Floats) -> Floats:
        return np.sqrt(_ratio(sums[..., 0], sums[..., 1]))


@dataclass(frozen=True)
class R2(Metric):
    """The share of the labels' variance that predictions explain, 1 - sum error^2 / sum (y - mean y)^2.

    Several targets are averaged. It is NaN if a target never changes.
    """

    def sums(self, scored: Scored) -> Tensor:
        errors, y = _errors(scored), _flat(scored.y)
        return torch.cat([torch.ones_like(y[:, :1]), errors.square(), y, y.square()], dim=1).double()

    def value(self, sums: Floats) -> Floats:
        n, (errors, y, squares) = sums[..., :1], np.split(sums[..., 1:], 3, axis=-1)
        return np.asarray((1 - _ratio(errors, squares - _ratio(y * y, n))).mean(-1))


@dataclass(frozen=True)
class Perplexity(Metric):
    """exp of the mean loss of a token that counts.

    It needs a task whose loss is the sum over a sequence's tokens, divided by their number T with padding.
    """

    better: ClassVar[Better] = "lower"

    def sums(self, scored: Scored) -> Tensor:
        return torch.stack([scored.losses * scored.y.shape[1], _total(scored.counted)], dim=1)

    def value(self, sums: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(_ratio(sums[..., 0], sums[..., 1]))


@dataclass(frozen=True)
class Together(Metric):
    """A metric of all samples of a set together, such as the area under a curve: `function(output, y)` gives a number.

    `output` is what counts of the model's output. On held-out data it is the mean of the clients' own values, weighted
    by their samples, since outputs do not leave the clients.
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
        """The value for these samples times their number, and their number, `[2]`; zeros without samples."""
        return np.array([float(self.function(output, y)) * len(y), len(y)] if len(y) else [0.0, 0.0])

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True)
class TorchMetric(Together):
    """A metric of the library torchmetrics: `metric` names its class, such as `"classification.BinaryAUROC"`.

    `options` are the arguments of this class. Raises `LibraryError` without torchmetrics.
    """

    function: Any = field(init=False, default=None, repr=False, compare=False)
    direction: Any = field(init=False, default="higher", repr=False, compare=False)
    metric: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with library("torchmetrics", "these metrics", "torchmetrics"):
            import torchmetrics
        made: Any = torchmetrics
        for part in self.metric.split("."):
            made = getattr(made, part, None)
        right = "must be a class of torchmetrics, such as classification.BinaryAUROC"
        check(
            isinstance(made, type) and issubclass(made, torchmetrics.Metric), "TorchMetric.metric", self.metric, right
        )
        try:
            found = of_torchmetrics(made(**self.options))
        except (TypeError, ValueError) as error:
            raise SettingError("TorchMetric", "options", self.options, str(error)) from error
        object.__setattr__(self, "function", found.function)
        object.__setattr__(self, "direction", found.direction)


def of_torchmetrics(metric: Any) -> Together:
    """The metric for an object of torchmetrics. Its direction is `higher_is_better` of its class."""

    def function(output: Tensor, y: Tensor) -> float:
        own = deepcopy(metric)
        own.reset()
        own.update(output, y)
        return float(own.compute())

    return Together(function, "lower" if metric.higher_is_better is False else "higher")


def as_metric(given: Any, name: str) -> Metric:
    """A metric from what users give: a `Metric`, an object of torchmetrics, or a function of (output, y)."""
    if isinstance(given, Metric):
        return given
    if hasattr(given, "update") and hasattr(given, "compute"):
        return of_torchmetrics(given)
    right = "must be a Metric, an object of torchmetrics, or a function of (output, y) that returns a number"
    check(callable(given) and not isinstance(given, type), f"metrics.{name}", given, right)
    return Together(given)


METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "f1": F1,
    "mean_iou": MeanIoU,
    "mae": MeanAbsoluteError,
    "rmse": RootMeanSquaredError,
    "r2": R2,
    "perplexity": Perplexity,
    "torchmetrics": TorchMetric,
}
"""The registered metrics by name."""


def _ratio(a: Floats, b: Any) -> Floats:
    """a / b, NaN where b is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b == 0, np.nan, np.divide(a, b))


def _total(values: Tensor) -> Tensor:
    """The sum over all but the first dimension, `[B]`."""
    return _flat(values).sum(1)


def _flat(values: Tensor) -> Tensor:
    """`[B, ...]` as `[B, m]`."""
    return values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)


def _errors(scored: Scored) -> Tensor:
    """The errors of all targets, `[B, targets]`."""
    return _flat(scored.predicted - scored.y)


def _indicators(values: Tensor, counted: Tensor, classes: int | None) -> Tensor:
    """For each class whether it is the value, bool `[B, classes, positions]`. Without `classes`, labels of 0 and 1."""
    if classes is None:
        return _flat((values == 1) & counted).unsqueeze(-1)
    flat, real = _flat(values).unsqueeze(1), _flat(counted).unsqueeze(1)
    return (flat == torch.arange(classes, device=values.device).view(1, -1, 1)) & real
