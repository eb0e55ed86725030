"""Metrics: numbers that say how good predictions are, computed from sums over samples or from all samples together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import AtLeastOne
from ..settings.setting import Setting
from ..vector.arrays import Floats

Better = Literal["higher", "lower"]

ROUNDING = 1e-14
"""The share of a sum of squares that is nothing but rounding."""


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


class Metric(Setting):
    """A number that says how good predictions are. A metric is a frozen dataclass that extends this class.

    `sums` gives k numbers for each sample. `value` makes the metric from their sums over any set of samples. So the
    same numbers serve the test set, the clients, and each class. A metric of all samples `together` has `of` in their
    place.
    """

    better: ClassVar[Better] = "higher"
    """Whether a higher or a lower number is better."""
    share: ClassVar[bool] = False
    """Whether it is a share in [0, 1], which is shown in per cent."""

    of_classes: ClassVar[bool] = False
    """Whether it is a mean over classes: of the samples of one class it says nothing."""

    together: ClassVar[bool] = False
    """Whether it is a metric of all samples of a set together, which `of` computes. Then a sample has no numbers."""

    def sums(self, scored: Scored) -> Tensor:
        """The numbers of each sample, `[B, k]`."""
        raise NotImplementedError(f"{type(self).__name__} has neither sums nor of")

    def of(self, output: Tensor, y: Tensor) -> float:
        """The metric of these samples, if it is one of all samples `together`. NaN where it is not defined."""
        raise NotImplementedError(f"{type(self).__name__} has no method of")

    def check_for(self, scored: Scored) -> None:
        """Compute the metric for a few samples, so that a mistake shows."""
        if self.together:
            self.of(scored.output.cpu(), scored.y.cpu())
        else:
            self.value(self.sums(scored).sum(0).double().cpu().numpy())

    def value(self, sums: Floats) -> Floats:
        """The metric `[...]` from the sums `[..., k]` over samples: by default a quotient. NaN if it is not defined."""
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True)
class Accuracy(Metric, name="accuracy"):
    """The share of right predictions among all that count: the label is among the `top` highest outputs."""

    top: AtLeastOne = 1
    """a prediction is right if the label is among so many highest outputs"""
    share: ClassVar[bool] = True

    def sums(self, scored: Scored) -> Tensor:
        y = scored.y
        hits = _predicted_classes(self, scored) == y
        if self.top > 1:
            dim = _class_dim(scored.output, y)
            check(scored.output.dim() > y.dim(), "Accuracy.top", self.top, "needs one output for each class")
            classes = scored.output.shape[dim]
            check(self.top <= classes, "Accuracy.top", self.top, f"must be at most {classes}, the number of classes")
            hits = (scored.output.topk(self.top, dim).indices == y.unsqueeze(dim)).any(dim)
        return _defined(torch.stack([_total(hits & scored.counted), _total(scored.counted)], dim=1), scored)


@dataclass(frozen=True)
class F1(Metric, name="f1"):
    """The F1 score, 2 hits / (2 hits + wrong + missed): the mean over classes (macro), or that of the 1 of yes or no.

    Classes that occur neither in labels nor in predictions do not count. Of several labels of 0 and 1, each is a class.
    """

    share: ClassVar[bool] = True
    of_classes: ClassVar[bool] = True

    def sums(self, scored: Scored) -> Tensor:
        return _counts(self, scored)

    def value(self, sums: Floats) -> Floats:
        hits, wrong, missed = np.split(sums, 3, axis=-1)
        return _over_classes(2 * hits, 2 * hits + wrong + missed)


@dataclass(frozen=True)
class MeanIoU(Metric, name="mean_iou"):
    """Intersection over union, hits / (hits + wrong + missed): the mean over classes, as for segmentation.

    Classes are counted as by `F1`.
    """

    share: ClassVar[bool] = True
    of_classes: ClassVar[bool] = True

    def sums(self, scored: Scored) -> Tensor:
        return _counts(self, scored)

    def value(self, sums: Floats) -> Floats:
        hits, wrong, missed = np.split(sums, 3, axis=-1)
        return _over_classes(hits, hits + wrong + missed)


@dataclass(frozen=True)
class MeanAbsoluteError(Metric, name="mae"):
    """The mean of |prediction - label| over all samples and targets."""

    better: ClassVar[Better] = "lower"

    def sums(self, scored: Scored) -> Tensor:
        errors = _errors(self, scored).abs()
        return torch.stack([errors.mean(1), torch.ones_like(errors[:, 0])], dim=1)


@dataclass(frozen=True)
class RootMeanSquaredError(Metric, name="rmse"):
    """The square root of the mean of (prediction - label)^2 over all samples and targets."""

    better: ClassVar[Better] = "lower"

    def sums(self, scored: Scored) -> Tensor:
        errors = _errors(self, scored)
        return torch.stack([errors.square().mean(1), torch.ones_like(errors[:, 0])], dim=1)

    def value(self, sums: Floats) -> Floats:
        return np.sqrt(_ratio(sums[..., 0], sums[..., 1]))


@dataclass(frozen=True)
class R2(Metric, name="r2"):
    """The share of the labels' variance that predictions explain, 1 - sum error^2 / sum (y - mean y)^2.

    Several targets are averaged. It is NaN if a target never changes.
    """

    def sums(self, scored: Scored) -> Tensor:
        # In float32, large labels of a small variance would lose all digits. Apple's GPUs have no float64.
        errors = _errors(self, scored).cpu().double()
        y = _flat(scored.y).cpu().double()
        return torch.cat([torch.ones_like(y[:, :1]), errors.square(), y, y.square()], dim=1)

    def value(self, sums: Floats) -> Floats:
        n = sums[..., :1]
        errors, y, squares = np.split(sums[..., 1:], 3, axis=-1)
        spread = squares - _ratio(y * y, n)
        least = np.finfo(np.float64).tiny / ROUNDING  # squares below are subnormal, with few digits
        spread = np.where(spread > ROUNDING * np.maximum(squares, least), spread, 0.0)
        return np.asarray((1 - _ratio(errors, spread)).mean(-1))


IGNORED = -100
"""Stands for tokens that do not count."""


@dataclass(frozen=True)
class Perplexity(Metric, name="perplexity"):
    """exp of the mean cross-entropy of a token that counts, whatever loss is trained.

    It needs outputs `[B, T, tokens]` and labels `[B, T]`.
    """

    better: ClassVar[Better] = "lower"

    def sums(self, scored: Scored) -> Tensor:
        tokens = scored.y.masked_fill(~scored.counted, IGNORED)
        losses = F.cross_entropy(scored.output.movedim(-1, 1), tokens, reduction="none", ignore_index=IGNORED)
        return torch.stack([losses.sum(1), _total(scored.counted)], dim=1)

    def value(self, sums: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(_ratio(sums[..., 0], sums[..., 1]))


def _ratio(a: Floats, b: Any) -> Floats:
    """a / b, NaN where b is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b == 0, np.nan, np.divide(a, b))


def _total(values: Tensor) -> Tensor:
    """The sum over all but the first dimension, `[B]`."""
    return _flat(values).sum(1)


def _flat(values: Tensor) -> Tensor:
    """`[B, ...]` as `[B, m]`."""
    if values.dim() > 1:
        return values.flatten(1)
    return values.unsqueeze(1)


def _predicted(metric: Metric, scored: Scored) -> Tensor:
    """The predictions; raises `SettingError` if they are not of the labels' shape."""
    shape = list(scored.predicted.shape)
    name = type(metric).__name__
    requirement = f"needs predictions of the labels' shape {list(scored.y.shape)}: name a task in the data"
    check(scored.predicted.shape == scored.y.shape, name, shape, requirement)
    return scored.predicted


def _predicted_classes(metric: Metric, scored: Scored) -> Tensor:
    """The predictions of classes; raises `SettingError` if the labels are no classes."""
    check(not scored.y.is_floating_point(), type(metric).__name__, scored.y.dtype, "needs labels that are integers")
    return _predicted(metric, scored)


def _errors(metric: Metric, scored: Scored) -> Tensor:
    """The errors of all targets, `[B, targets]`."""
    return _flat(_predicted(metric, scored) - scored.y)


def _class_dim(output: Tensor, y: Tensor) -> int:
    """The dimension of the classes: the second one for images `[B, classes, H, W]`, else the last one."""
    is_image = output.dim() == 4 and (output.shape[0], *output.shape[2:]) == y.shape
    return 1 if is_image else -1


def _over_classes(part: Floats, whole: Floats) -> Floats:
    """The mean of part / whole `[..., classes]` over the classes that occur, whose whole is not 0."""
    occurs = whole != 0
    return _ratio(np.where(occurs, _ratio(part, whole), 0.0).sum(-1), occurs.sum(-1))


def _counts(metric: Metric, scored: Scored) -> Tensor:
    """Right predictions, wrong predictions and missed labels of each class, `[B, 3 classes]`."""
    classes = None
    if scored.output.shape != scored.y.shape:
        classes = scored.output.shape[_class_dim(scored.output, scored.y)]
    predicted = _indicators(_predicted_classes(metric, scored), scored.counted, classes)
    labelled = _indicators(scored.y, scored.counted, classes)
    counts = []
    for indicators in (predicted & labelled, predicted & ~labelled, labelled & ~predicted):
        counts.append(indicators.flatten(2).sum(-1))
    return _defined(torch.cat(counts, dim=1), scored)


def _defined(sums: Tensor, scored: Scored) -> Tensor:
    """The sums `[B, k]`, NaN for samples with an output that counts and is NaN: its `argmax` would be a class."""
    undefined = scored.output.isnan()
    if undefined.shape != scored.y.shape:
        undefined = undefined.any(_class_dim(undefined, scored.y))
    return torch.where(_flat(undefined & scored.counted).any(1, keepdim=True), torch.nan, sums)


def _indicators(values: Tensor, counted: Tensor, classes: int | None) -> Tensor:
    """For each class whether it is the value, bool `[B, classes, positions]`. Without `classes`, labels of 0 and 1."""
    if classes is None:
        return _flat((values == 1) & counted).unsqueeze(-1)
    flat = _flat(values).unsqueeze(1)
    real = _flat(counted).unsqueeze(1)
    return (flat == torch.arange(classes, device=values.device).view(1, -1, 1)) & real
