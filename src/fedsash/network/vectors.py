"""The vectors of a scheduler. They can be saved, and they are numbered, so that a replay finds them again.

Events never depend on models, except for uploads that the guard refuses, and these are recorded. So a run is resumed
from its seed: time is replayed up to the saved step without any training. In the replay the scheduler makes the same
calculations, on vectors without values. The n-th vector of the replay is the n-th vector of the run. So the saved
values of the vectors that are still needed can be put back by their numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from torch import Tensor

from ..vector.arrays import Vectors


class Vector:
    """A tensor `value` `[D]`, or None during a replay. The operators + - * / with numbers or vectors make new vectors.

    `number` is the number of vectors that were made before it.
    """

    __slots__ = ("__weakref__", "_numbering", "number", "value")

    def __init__(self, numbering: Numbering, number: int, value: Tensor | None) -> None:
        self._numbering = numbering
        self.number = number
        self.value = value

    @property
    def known(self) -> Tensor:
        """The value `[D]`. Raises `RuntimeError` if there is none."""
        self._numbering.use(self)
        if self.value is None:
            raise RuntimeError(
                "the saved state lacks a model that the scheduler needs: was it saved by another scheduler?"
            )
        return self.value

    def __add__(self, other: Any) -> Vector:
        return self._with(operator.add, self, other)

    def __radd__(self, other: Any) -> Vector:
        return self._with(operator.add, other, self)

    def __sub__(self, other: Any) -> Vector:
        return self._with(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Vector:
        return self._with(operator.sub, other, self)

    def __mul__(self, other: Any) -> Vector:
        return self._with(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Vector:
        return self._with(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Vector:
        return self._with(operator.truediv, self, other)

    def __neg__(self) -> Vector:
        return self._with(operator.mul, -1.0, self)

    def _with(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Vector:
        """The next vector, the result of an operation on two numbers or vectors; without a value if one has none."""
        self._numbering.use(left, right)
        if isinstance(left, Vector):
            left = left.value
        if isinstance(right, Vector):
            right = right.value
        if left is None or right is None:
            return self._numbering.make(None)
        return self._numbering.make(operation(left, right))


class Numbering:
    """Numbers the vectors, and knows those that were in use after the server's last step.

    These are kept until the next step, even if they are no longer needed: a run that ends between two steps is resumed
    from the last step.
    """

    def __init__(self) -> None:
        self._count = 0
        self._count_at_step = 0
        self._in_use: WeakValueDictionary[int, Vector] = WeakValueDictionary()
        # Vectors that were used since the last step: nobody else may refer to them any more.
        self._used: list[Vector] = []

    def step(self) -> None:
        """Note that the server has made a step, after all events at the same instant."""
        self._count_at_step = self._count
        self._used.clear()

    def use(self, *values: Any) -> None:
        """Keep these vectors until the next step, if they were made before the last one."""
        for value in values:
            if isinstance(value, Vector) and value.number < self._count_at_step:
                self._used.append(value)

    def make(self, value: Tensor | None) -> Vector:
        """The next vector."""
        vector = Vector(self, self._count, value)
        self._in_use[self._count] = vector
        self._count += 1
        return vector

    def loan(self, vector: Vector) -> Vector:
        """The same vector, for a use that ends with this process: it is saved only if it is needed elsewhere, too."""
        return Vector(self, vector.number, vector.value)

    def saved(self) -> Vectors:
        """The values of the vectors that were in use after the last step, by their numbers."""
        saved: Vectors = {}
        for number, vector in sorted(self._in_use.items()):
            if number < self._count_at_step and vector.value is not None:
                # A copy: vectors may share a tensor with each other or with the global model, and a file refuses that.
                saved[f"{number:012d}"] = vector.value.clone()
        return saved

    def load(self, saved: Mapping[str, Tensor], like: Tensor) -> None:
        """Give the vectors in use their saved values, on the device of `like`."""
        for number, value in saved.items():
            vector = self._in_use.get(int(number))
            if vector is not None:
                vector.value = value.to(like.device, copy=True)
