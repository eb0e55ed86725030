"""Losses that users bring: one number for each sample, and the task that belongs to a loss."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..settings.errors import SettingError, check, some
from .base import Loss, Task, refuse_beyond, refuse_first
from .classification import Binary, Classification, MultiLabel
from .regression import Regression
from .sequences import NextToken

CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss, F.cross_entropy, F.nll_loss)
LOGITS = (nn.BCEWithLogitsLoss, F.binary_cross_entropy_with_logits)
NUMBERS = (
    nn.MSELoss,
    nn.L1Loss,
    nn.HuberLoss,
    nn.SmoothL1Loss,
    F.mse_loss,
    F.l1_loss,
    F.huber_loss,
    F.smooth_l1_loss,
)
"""Losses of PyTorch, as modules and as functions, by the task that they belong to."""


@dataclass(frozen=True)
class OnlyLoss(Task):
    """What is learned is said by a loss alone, so there are no other metrics.

    Labels are classes, counted from 0, if they are integers; all others, such as -1 and 1, are floating-point numbers.
    """

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError("the federation has its own loss")

    def answer(self, output: Any, y: Tensor) -> Tensor:
        """The output as it is, or labels in its place if it is no tensor: nothing is scored."""
        if isinstance(output, Tensor):
            return output
        return y

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


@dataclass(frozen=True, eq=False, repr=False)
class PerSample:
    """A loss of PyTorch, as `given`, whose mean over the batch is undone in `loss`.

    Its result `[B, ...]` becomes a mean for each sample. Raises `SettingError` if it is not of the labels' shape, since
    PyTorch has then stretched outputs and labels to fit each other.
    """

    given: Any
    loss: Any
    task: Task

    def __call__(self, output: Any, y: Tensor) -> Tensor:
        answer = self.task.answer(output, y)
        if isinstance(self.task, NextToken) and _is_among(self.given, CLASSES):
            answer = answer.movedim(-1, 1)  # PyTorch has the classes second
        labels = y.to(answer.dtype) if _is_among(self.given, LOGITS) else y
        losses: Tensor = self.loss(answer, labels)
        problem = f"makes losses {list(losses.shape)} of outputs {list(answer.shape)} and labels {list(y.shape)}"
        check(losses.shape in (y.shape, y.shape[:1]), "Federation.loss", self, problem)
        if losses.dim() > 1:
            return losses.flatten(1).mean(1)
        return losses

    def __repr__(self) -> str:
        return getattr(self.given, "__name__", "") or repr(self.given)


def per_sample(loss: Any, task: Task) -> Loss:
    """A user's loss as one number for each sample.

    The reduction of PyTorch's losses is undone: that of a module such as `nn.CrossEntropyLoss()`, and of a function
    such as `torch.nn.functional.cross_entropy`. Any other function is taken as it is: it must return `[B]`.

    Raises `SettingError` for a class in place of an object, for a sum over the batch, and for a mean that divides by
    the weights of the batch's labels.
    """
    place = "Federation.loss"
    if isinstance(loss, type):
        raise SettingError.at(place, loss.__name__, f"is a class: give an object of it, {loss.__name__}()")
    if isinstance(loss, nn.modules.loss._Loss):
        requirement = "a sum over the batch has no mean over samples: use reduction='mean' or 'none'"
        check(loss.reduction in ("mean", "none"), place, loss, requirement)
        has_weights = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) and getattr(loss, "weight", None) is not None
        if has_weights and loss.reduction == "mean":
            cure = "use the task Classification(weights=...) instead"
            raise SettingError.at(place, loss, f"its mean divides by the weights of a batch's labels: {cure}")
        unreduced = copy.copy(loss)
        unreduced.reduction = "none"
        return PerSample(loss, unreduced, task)
    is_function_of_torch = getattr(loss, "__module__", "") == "torch.nn.functional"
    if is_function_of_torch and "reduction" in inspect.signature(loss).parameters:
        return PerSample(loss, partial(loss, reduction="none"), task)
    return loss  # type: ignore[no-any-return]


def check_task(task: Task, y: Tensor | None = None) -> None:
    """Raise `SettingError` if neither the data nor a loss say what is learned; labels `y` may show what was meant."""
    if not isinstance(task, OnlyLoss):
        return
    cure = "give a loss, or name a task in the data, such as fs.tasks.Regression()"
    hint = "" if y is None else _hint_of(y)
    raise SettingError.at("FederatedData.task", None, f"says nothing of what is learned: {cure}{hint}")


def _hint_of(y: Tensor) -> str:
    """How labels that are no classes can be made classes, as the end of an error; empty if they look like numbers."""
    if y.dim() == 2 and y.shape[1] == 1:
        return "; labels of classes have the shape [n], and these are a column: y[:, 0]"
    if y.dim() == 2:
        is_one_hot = bool(((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all())
        if is_one_hot:
            return "; labels of classes are numbers [n], and these are one-hot: y.argmax(1)"
    if y.dim() == 1 and y.is_floating_point():
        are_whole = bool((y == y.round()).all() and (y >= 0).all())
        if are_whole:
            kind = "whole numbers of a floating-point type"
            return f"; labels of classes are integers, and these are {kind}: y.astype(int)"
    return ""


def check_all_count(loss: Any, labels: Mapping[str, Tensor]) -> None:
    """Raise `SettingError` if the mean of PyTorch's `loss` leaves out some of the `labels` of a split.

    It divides by how many labels of a batch are left, and no number for each sample has this mean.
    """
    ignored = None
    if any(loss is function for function in CLASSES):
        ignored = inspect.signature(loss).parameters["ignore_index"].default
    elif getattr(loss, "reduction", "") == "mean":
        ignored = getattr(loss, "ignore_index", None)
    if ignored is None:
        return
    for split, y in labels.items():
        requirement = (
            f"its mean divides by how many labels of a batch are not {ignored}, and FederatedData.{split}.y has such "
            "labels: for tokens or pixels leave the loss out, their tasks have one; or take reduction='none', and all "
            "labels count"
        )
        check(not bool((y == ignored).any()), "Federation.loss", PerSample(loss, loss, OnlyLoss()), requirement)


def chosen_task(task: Task | None, y: Tensor, loss: Any = None) -> Task:
    """The task that is named; otherwise that of PyTorch's `loss`, or `OnlyLoss` for a function of one's own.

    Without a loss it is a classification for integers, one for each sample. Other labels raise no error here: they are
    `OnlyLoss` until a federation without a loss is made of them.
    """
    if task is not None:
        return task
    if _is_among(loss, NUMBERS):
        return Regression()
    if _is_among(loss, LOGITS) and y.dim() == 1:
        return Binary()
    if _is_among(loss, LOGITS) and y.dim() == 2:
        return MultiLabel()
    may_be_classes = not y.is_floating_point() and y.dim() == 1
    if may_be_classes and (loss is None or _is_among(loss, CLASSES)):
        return Classification()
    return OnlyLoss()


def check_unnamed(task: Task, names: Sequence[str], place: str) -> None:
    """Raise `SettingError` if labels are to be learned as numbers, and have other `names` than their numbers."""
    are_numbers = tuple(names) == tuple(map(str, range(len(names))))
    requirement = (
        f"labels with names are classes, and {type(task).__name__} learns numbers: give numbers in a numeric type"
    )
    check(are_numbers or task.labels != "numbers", place, some(names, 5), requirement)


def are_classes(labels: NDArray[Any]) -> bool:
    """Whether labels are whole numbers that count classes from 0 on, and not, say, prices.

    They are unless one is negative, or the highest is 1,000 or more and ten times the number of different labels.
    """
    if labels.dtype.kind == "f":
        return False
    if not labels.size:
        return True
    low = int(labels.min())
    high = int(labels.max())
    return low >= 0 and (high < 1000 or high < 10 * len(np.unique(labels)))


def _is_among(loss: Any, losses: tuple[Any, ...]) -> bool:
    """Whether a loss is one of these functions, or of one of these classes."""
    for kind in losses:
        if loss is kind:
            return True
        if isinstance(kind, type) and isinstance(loss, kind):
            return True
    return False
