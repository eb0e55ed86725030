"""The base class of tasks: the loss of a sample, and how predictions are scored."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..settings.errors import ModelError, SettingError, check
from ..settings.setting import Setting
from .metrics import Metric, Scored

Loss = Callable[[Any, Tensor], Tensor]
"""`loss(output, y)`: one number for each sample, `[B]`."""


class Task(Setting, ABC):
    """What is learned. A task is a frozen dataclass that extends this class.

    `loss`, `predicted` and `counted` get the tensor that `answer` takes from the model's output. `y` is int64, or for
    `labels = "numbers"` of the model's floating-point type. It is `[B]` or `[B, ...]`.
    """

    labels: ClassVar[Literal["integers", "numbers"]] = "integers"
    """Whether labels are whole numbers or floating-point numbers."""

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, `[B]`."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The task's own metrics by name. The first one decides, unless the evaluation names another one."""
        return {}

    def answer(self, output: Any, y: Tensor) -> Tensor:
        """What counts of a model's output: a tensor, the `logits` of a dict or an object, or the first of a tuple.

        Raises `ModelError` for any other output.
        """
        if isinstance(output, Tensor):
            return output
        logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        if logits is None:
            logits = output[0] if isinstance(output, tuple | list) and len(output) else output
        if not isinstance(logits, Tensor):
            right = "a tensor, a tuple that begins with one, or something with logits; or a task with a method answer"
            raise ModelError(f"the model returns {_described(output)}: it must return {right}")
        return logits

    def loss_of(self, output: Any, y: Tensor) -> Tensor:
        """The loss of each sample, `[B]`, from all that the model returns."""
        return self.loss(self.answer(output, y), y)

    def predicted(self, output: Tensor) -> Tensor:
        """The predictions, in the form of `y`."""
        return output

    def counted(self, y: Tensor) -> Tensor:
        """Which of the labels count, bool of the shape of `y`; by default all."""
        return torch.ones_like(y, dtype=torch.bool)

    def scored(self, output: Any, y: Tensor, losses: Tensor) -> Scored:
        """All that a metric may need of some samples."""
        answer = self.answer(output, y)
        predicted = self.predicted(answer)
        counted = self.counted(y)
        return Scored(output=answer, predicted=predicted, y=y, counted=counted, losses=losses)

    def labelled(self, y: Tensor) -> Tensor:
        """The labels in the task's type, where no label changes; others are returned as they are."""
        if self.labels == "numbers":
            return y if y.is_floating_point() else y.double()
        whole = y.is_floating_point() and bool((y == y.round()).all())
        return y.long() if whole else y

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        """Raise `SettingError`, naming `place` and the sample, unless all labels are allowed."""
        right = "numbers of a floating-point type" if self.labels == "numbers" else "integers"
        kind = f"of the task {type(self).__name__} must be {right}"
        check(y.is_floating_point() == (self.labels == "numbers"), place, str(y.dtype), f"labels {kind}")
        if y.is_floating_point():
            refuse_first(~torch.isfinite(y), y, place, "must be finite")

    def chances(self, output: Tensor) -> Tensor:
        """What the library torchmetrics takes for an output: probabilities where a sample has one class or several."""
        return output

    def classes(self, y: Tensor) -> int:
        """The number of classes that labels show; 0 if they are no classes."""
        counted = y[self.counted(y)]
        return 0 if y.is_floating_point() or not counted.numel() else 1 + int(counted.max())

    def occurrences(self, y: Tensor, classes: int) -> Tensor:
        """How often each class occurs in the labels that count, `[classes]`."""
        return torch.bincount(y[self.counted(y)].flatten(), minlength=classes)

    def width(self, y: Tensor, classes: int) -> int:
        """The number of outputs that a model needs: the number of classes, or of targets for labels `"numbers"`."""
        return classes if self.labels == "integers" else math.prod(y.shape[1:])

    def right(self, y: Tensor, classes: int) -> tuple[int, ...]:
        """The right shape of `answer` for the labels `y` `[B, ...]`."""
        return tuple(y.shape)

    def fits(self, output: Tensor, y: Tensor, classes: int) -> bool:
        """Whether an answer has a right shape."""
        return output.shape == self.right(y, classes)


def refuse_first(bad: Tensor, y: Tensor, place: str, right: str) -> None:
    """Raise `SettingError` for the first label that is `bad`, if there is one."""
    if bool(bad.any()):
        where = int(bad.flatten().int().argmax())
        sample = where // max(y[0].numel(), 1)
        raise SettingError("", f"{place}[{sample}]", y.flatten()[where].item(), right)


def refuse_negative(y: Tensor, place: str) -> None:
    """Raise `SettingError` for the first negative label."""
    codes = bool((y == 0).any()) and not bool((y < -1).any())  # of pandas, as in Series.cat.codes and factorize
    why = "-1 is pandas' code for a missing value: fill it, or leave the sample out"
    hint = why if codes else "write 0 and 1 for -1 and 1"
    right = f"classes are numbered from 0 on ({hint}); other numbers need a task such as regression"
    refuse_first(y < 0, y, place, right)


def refuse_beyond(y: Tensor, count: int, place: str, ignored: int | None = None) -> None:
    """Raise `SettingError` for the first label outside 0, ..., `count` - 1 that is not `ignored`."""
    bad = (y < 0) | (y >= count)
    if ignored is not None:
        bad &= y != ignored
    refuse_first(bad, y, place, f"must be 0 to {count - 1}")


def like_labels(output: Tensor, y: Tensor) -> Tensor:
    """An output `[B, ..., 1]` for labels `[B, ...]` without its last dimension."""
    return output.squeeze(-1) if output.shape == (*y.shape, 1) else output


def _described(output: Any) -> str:
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} of {', '.join(map(str, output)) or 'nothing'}"
    return f"an object of class {type(output).__name__}"
