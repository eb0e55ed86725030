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
        if logits is None and isinstance(output, tuple | list) and len(output):
            logits = output[0]
        if not isinstance(logits, Tensor):
            raise ModelError(
                f"the model returns {_described(output)}: it must return a tensor, a tuple that begins with one, or "
                "something with logits; or a task with a method answer"
            )
        return logits

    def loss_of(self, output: Any, y: Tensor) -> Tensor:
        """The loss of each sample, `[B]`, from all that the model returns."""
        return self.loss(self.answer(output, y), y)

    def predicted(self, output: Tensor) -> Tensor:
        """The predictions, in the form of `y`."""
        return output

    @property
    def ignored_label(self) -> int | None:
        """The label that does not count, such as that of padding; None if all count."""
        return None

    def counted(self, y: Tensor) -> Tensor:
        """Which of the labels count, bool of the shape of `y`; by default all but `ignored_label`."""
        if self.ignored_label is None:
            return torch.ones_like(y, dtype=torch.bool)
        return y != self.ignored_label

    def scored(self, output: Any, y: Tensor, losses: Tensor) -> Scored:
        """All that a metric may need of some samples."""
        answer = self.answer(output, y)
        predicted = self.predicted(answer)
        counted = self.counted(y)
        return Scored(output=answer, predicted=predicted, y=y, counted=counted, losses=losses)

    def labelled(self, y: Tensor) -> Tensor:
        """The labels in the task's type, where no label changes; others are returned as they are."""
        is_floating = y.is_floating_point()
        if self.labels == "numbers" and not is_floating:
            return y.double()
        if self.labels == "integers" and is_floating and bool((y == y.round()).all()):
            return y.long()
        return y

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        """Raise `SettingError`, naming `place` and the sample, unless all labels are allowed."""
        are_numbers = self.labels == "numbers"
        wanted = "numbers of a floating-point type" if are_numbers else "integers"
        requirement = f"labels of the task {type(self).__name__} must be {wanted}"
        check(y.is_floating_point() == are_numbers, place, str(y.dtype), requirement)
        if y.is_floating_point():
            refuse_first(~torch.isfinite(y), y, place, "must be finite")

    def chances(self, output: Tensor) -> Tensor:
        """What the library torchmetrics takes for an output: probabilities where a sample has one class or several."""
        return output

    def classes(self, y: Tensor) -> int:
        """The number of classes that labels show; 0 if they are no classes."""
        counted = y[self.counted(y)]
        if y.is_floating_point() or not counted.numel():
            return 0
        return 1 + int(counted.max())

    def occurrences(self, y: Tensor, classes: int) -> Tensor:
        """How often each class occurs in the labels that count, `[classes]`."""
        return torch.bincount(y[self.counted(y)].flatten(), minlength=classes)

    def width(self, y: Tensor, classes: int) -> int:
        """The number of outputs that a model needs: the number of classes, or of targets for labels `"numbers"`."""
        if self.labels == "integers":
            return classes
        return math.prod(y.shape[1:])

    def right(self, y: Tensor, classes: int) -> tuple[int, ...]:
        """The right shape of `answer` for the labels `y` `[B, ...]`."""
        return tuple(y.shape)

    def fits(self, output: Tensor, y: Tensor, classes: int) -> bool:
        """Whether an answer has a right shape."""
        return output.shape == self.right(y, classes)


def refuse_first(bad: Tensor, y: Tensor, place: str, requirement: str) -> None:
    """Raise `SettingError` for the first label that is `bad`, if there is one."""
    if bool(bad.any()):
        index = int(bad.flatten().int().argmax())
        labels_per_sample = max(y[0].numel(), 1)
        sample = index // labels_per_sample
        raise SettingError("", f"{place}[{sample}]", y.flatten()[index].item(), requirement)


def refuse_negative(y: Tensor, place: str) -> None:
    """Raise `SettingError` for the first negative label."""
    # pandas numbers classes from 0 on, and missing values -1: Series.cat.codes and factorize.
    may_be_of_pandas = bool((y == 0).any()) and not bool((y < -1).any())
    if may_be_of_pandas:
        hint = "-1 is pandas' code for a missing value: fill it, or leave the sample out"
    else:
        hint = "write 0 and 1 for -1 and 1"
    requirement = f"classes are numbered from 0 on ({hint}); other numbers need a task such as regression"
    refuse_first(y < 0, y, place, requirement)


def refuse_beyond(y: Tensor, count: int, place: str, ignored: int | None = None) -> None:
    """Raise `SettingError` for the first label outside 0, ..., `count` - 1 that is not `ignored`."""
    bad = (y < 0) | (y >= count)
    if ignored is not None:
        bad &= y != ignored
    refuse_first(bad, y, place, f"must be 0 to {count - 1}")


def like_labels(output: Tensor, y: Tensor) -> Tensor:
    """An output `[B, ..., 1]` for labels `[B, ...]` without its last dimension."""
    if output.shape == (*y.shape, 1):
        return output.squeeze(-1)
    return output


def _described(output: Any) -> str:
    """A model's output in words, for an error."""
    if isinstance(output, Mapping):
        keys = ", ".join(map(str, output)) or "nothing"
        return f"a {type(output).__name__} of {keys}"
    return f"an object of class {type(output).__name__}"
