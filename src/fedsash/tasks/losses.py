"""Losses that users bring: one number for each sample, and the task that belongs to a loss."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..basics.errors import check
from .base import Loss, Task, refuse_beyond, refuse_first
from .classification import Binary, Classification, MultiLabel
from .regression import Regression

NUMBERS = (nn.MSELoss, nn.L1Loss, nn.HuberLoss, nn.SmoothL1Loss)


@dataclass(frozen=True)
class OnlyLoss(Task):
    """What is learned is said by a loss alone, so there are no other metrics. Labels may be of any kind."""

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError("the federation has its own loss")

    def answer(self, output: Any, y: Tensor) -> Tensor:
        """The output as it is, or labels in its place if it is no tensor: nothing is scored."""
        return output if isinstance(output, Tensor) else y

    def labelled(self, y: Tensor) -> Tensor:
        """The labels as they are."""
        return y

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        """Refuse what can't be a class, for integers, and what is not finite."""
        if y.is_floating_point():
            refuse_first(~torch.isfinite(y), y, place, "must be finite")
        else:
            refuse_beyond(y, classes, place)

    def fits(self, output: Tensor, y: Tensor, classes: int) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class PerSample:
    """A loss of PyTorch whose mean over the batch is undone. Its result `[B, ...]` becomes a mean for each sample."""

    loss: Any
    task: Task

    def __call__(self, output: Any, y: Tensor) -> Tensor:
        answer = self.task.answer(output, y)
        losses: Tensor = self.loss(answer, y.to(answer.dtype) if isinstance(self.loss, nn.BCEWithLogitsLoss) else y)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


def per_sample(loss: Any, task: Task) -> Loss:
    """A user's loss as one number for each sample.

    The reduction of PyTorch's losses is undone: that of a module such as `nn.CrossEntropyLoss()`, and of a function
    such as `torch.nn.functional.cross_entropy`. Any other function is taken as it is: it must return `[B]`.

    Raises `SettingError` for a sum over the batch, and for a mean that divides by the weights of the batch's labels.
    """
    if isinstance(loss, nn.modules.loss._Loss):
        right = "a sum over the batch has no mean over samples: use reduction='mean' or 'none'"
        check(loss.reduction in ("mean", "none"), "Federation.loss", loss, right)
        weighted = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) and getattr(loss, "weight", None) is not None
        right = "its mean divides by the weights of a batch's labels: use the task Classification(weights=...) instead"
        check(not (weighted and loss.reduction == "mean"), "Federation.loss", loss, right)
        own = copy.copy(loss)
        own.reduction = "none"
        return PerSample(own, task)
    if getattr(loss, "__module__", "") == "torch.nn.functional" and "reduction" in inspect.signature(loss).parameters:
        return PerSample(partial(loss, reduction="none"), task)
    return loss  # type: ignore[no-any-return]


def chosen_task(said: Task | None, y: Tensor, loss: Any = None) -> Task:
    """The task that is `said`; otherwise that of PyTorch's `loss`, or `OnlyLoss` for a function of one's own.

    Without a loss it is a classification for integers, one for each sample. Other labels raise no error here: they are
    `OnlyLoss` until a federation without a loss is made of them.
    """
    if said is not None:
        return said
    integers = not y.is_floating_point() or isinstance(loss, nn.BCEWithLogitsLoss)  # it takes 0.0 and 1.0
    if loss is None or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return Classification() if integers and y.dim() == 1 else OnlyLoss()
    if isinstance(loss, nn.BCEWithLogitsLoss) and y.dim() in (1, 2):
        return Binary() if y.dim() == 1 else MultiLabel()
    return Regression() if isinstance(loss, NUMBERS) and not integers else OnlyLoss()
