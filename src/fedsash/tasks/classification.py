"""Tasks with classes: one of many, yes or no, several at once, and one for each pixel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import Fraction, Positive
from ..settings.setting import Accepts, default
from .base import Task, like_labels, refuse_beyond, refuse_negative
from .metrics import Accuracy, MeanIoU, Metric


@dataclass(frozen=True)
class Classification(Task, name="classification"):
    """One of several classes: outputs `[B, classes]`, `y` `[B]`.

    The loss is the cross-entropy with label smoothing s, times the weight of the sample's class:
    `weight[y] * ((1 - s) * -log p[y] + s * mean_c -log p[c])`. A batch's loss is the mean over its
    samples. (PyTorch divides by the sum of the weights, and weights the smoothed part by class.)
    """

    weights: Accepts[tuple[float, ...], Sequence[float]] = default(())
    """the weight of each class in the loss; left out, each is 1"""
    smoothing: Fraction = 0.0
    """the label smoothing s"""

    def __post_init__(self) -> None:
        are_weights = all(weight >= 0 for weight in self.weights) and sum(self.weights) > 0
        requirement = "must not be negative, and not all 0"
        check(not self.weights or are_weights, "Classification.weights", self.weights, requirement)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Accuracy()}

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy of each sample, `[B]`."""
        losses = F.cross_entropy(output, y, reduction="none", label_smoothing=self.smoothing)
        if not self.weights:
            return losses
        weights = torch.tensor(self.weights, dtype=losses.dtype, device=y.device)
        return losses * weights[y]

    def chances(self, output: Tensor) -> Tensor:
        return output.softmax(-1)

    def predicted(self, output: Tensor) -> Tensor:
        """The class with the highest output, `[B]`."""
        return output.argmax(-1)

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        super().check_labels(y, classes, place)
        check(y.dim() == 1, place, list(y.shape), "must be [samples], one class for each")
        refuse_negative(y, place)
        refuse_beyond(y, classes, place)
        requirement = f"must be one for each of {classes} classes"
        check(len(self.weights) in (0, classes), "Classification.weights", self.weights, requirement)

    def right(self, y: Tensor, classes: int) -> tuple[int, ...]:
        return (*y.shape, classes)

    def fits(self, output: Tensor, y: Tensor, classes: int) -> bool:
        """Whether the outputs are `[B, classes]`; there may be more outputs than classes."""
        return output.dim() == 2 and len(output) == len(y) and output.shape[1] >= classes


@dataclass(frozen=True)
class Binary(Task, name="binary"):
    """Yes or no by one logit: outputs `[B]` or `[B, 1]`, `y` `[B]` of 0 and 1.

    The loss is the logistic loss. The prediction is 1 if the logit is above 0.
    """

    positive: Positive = 1.0
    """what the loss of a label 1 is multiplied by, as PyTorch's `pos_weight`"""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Accuracy()}

    def answer(self, output: Any, y: Tensor) -> Tensor:
        return like_labels(super().answer(output, y), y)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The logistic loss of each sample, `[B]`."""
        return _logistic(output, y, self.positive)

    def chances(self, output: Tensor) -> Tensor:
        return output.sigmoid()

    def predicted(self, output: Tensor) -> Tensor:
        return (output > 0).long()

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        super().check_labels(y, classes, place)
        check(y.dim() == 1, place, list(y.shape), "must be [samples], a 0 or 1 for each")
        refuse_negative(y, place)
        refuse_beyond(y, 2, place)

    def classes(self, y: Tensor) -> int:
        return 2

    def width(self, y: Tensor, classes: int) -> int:
        return 1


@dataclass(frozen=True)
class MultiLabel(Task, name="multi_label"):
    """Any number of labels at once: outputs `[B, labels]`, `y` `[B, labels]` of 0 and 1.

    The loss is the mean logistic loss over the labels. A label is predicted if its logit is above 0. The accuracy is
    the share of right labels.
    """

    positive: Positive = 1.0
    """what the loss of a label 1 is multiplied by, as PyTorch's `pos_weight`"""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Accuracy()}

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean logistic loss over the labels of each sample, `[B]`."""
        return _logistic(output, y, self.positive).mean(1)

    def chances(self, output: Tensor) -> Tensor:
        return output.sigmoid()

    def predicted(self, output: Tensor) -> Tensor:
        return (output > 0).long()

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        super().check_labels(y, classes, place)
        check(y.dim() == 2, place, list(y.shape), "must be [samples, labels], each 0 or 1")
        refuse_beyond(y, 2, place)

    def classes(self, y: Tensor) -> int:
        """The number of labels."""
        return y.shape[-1]

    def occurrences(self, y: Tensor, classes: int) -> Tensor:
        """How often each label is 1, `[labels]`."""
        return y.sum(0)


@dataclass(frozen=True)
class Segmentation(Task, name="segmentation"):
    """One class for each pixel: outputs `[B, classes, H, W]`, `y` `[B, H, W]`.

    The loss is the cross-entropy summed over the pixels that count, divided by H * W.
    """

    ignored: int | None = None
    """the label of pixels that do not count; left out, all count"""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"mean_iou": MeanIoU(), "accuracy": Accuracy()}

    @property
    def ignored_label(self) -> int | None:
        return self.ignored

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss of each image, `[B]`."""
        ignored = -100 if self.ignored is None else self.ignored
        return F.cross_entropy(output, y, reduction="none", ignore_index=ignored).flatten(1).mean(1)

    def chances(self, output: Tensor) -> Tensor:
        return output.softmax(1)

    def predicted(self, output: Tensor) -> Tensor:
        return output.argmax(1)

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        super().check_labels(y, classes, place)
        check(y.dim() == 3, place, list(y.shape), "must be [samples, height, width], one class for each pixel")
        refuse_beyond(y, classes, place, self.ignored)

    def right(self, y: Tensor, classes: int) -> tuple[int, ...]:
        return (y.shape[0], classes, *y.shape[1:])

    def fits(self, output: Tensor, y: Tensor, classes: int) -> bool:
        """Whether the outputs are `[B, classes, H, W]`; there may be more outputs than classes."""
        size = self.right(y, classes)[2:]
        return output.dim() == 4 and output.shape[2:] == size and output.shape[1] >= classes


def _logistic(output: Tensor, y: Tensor, positive: float) -> Tensor:
    """The logistic loss of each label; that of a label 1 is multiplied by `positive`."""
    weight = None
    if positive != 1:
        weight = torch.tensor(positive, dtype=output.dtype, device=output.device)
    return F.binary_cross_entropy_with_logits(output, y.to(output.dtype), reduction="none", pos_weight=weight)
