"""The task of predicting numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from ..settings.limits import Positive
from .base import Task, like_labels
from .metrics import R2, MeanAbsoluteError, Metric, RootMeanSquaredError


@dataclass(frozen=True)
class Regression(Task, name="regression"):
    """Numbers: outputs `[B]`, `[B, 1]` or `[B, targets]`, `y` `[B]` or `[B, targets]` of floating-point type.

    The loss of a sample is the mean of `error` over its targets. Huber's loss is e^2 / 2 up to |e| = `delta`,
    then delta (|e| - delta / 2).
    """

    error: Literal["squared", "absolute", "huber"] = "squared"
    """the loss of a target: e^2 ("squared"), |e| ("absolute") or Huber's loss ("huber"), where e is the prediction
    minus the label"""
    delta: Positive = 1.0
    """up to which |e| Huber's loss is quadratic; beyond, it is linear"""
    labels = "numbers"

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"rmse": RootMeanSquaredError(), "mae": MeanAbsoluteError(), "r2": R2()}

    def answer(self, output: Any, y: Tensor) -> Tensor:
        return like_labels(super().answer(output, y), y)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean loss over the targets of each sample, `[B]`."""
        if self.error == "squared":
            losses = F.mse_loss(output, y, reduction="none")
        elif self.error == "absolute":
            losses = F.l1_loss(output, y, reduction="none")
        else:
            losses = F.huber_loss(output, y, reduction="none", delta=self.delta)
        if losses.dim() == 1:
            return losses
        return losses.flatten(1).mean(1)
