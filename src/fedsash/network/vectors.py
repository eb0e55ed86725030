"""The vectors that a scheduler calculates with: they can be saved, and their places kept while time is replayed.

Events never depend on models (but for uploads that the guard refuses, which are written down). So a run goes on from
its seed: time is replayed up to the saved step without any training, and every scheduler does the same sums on vectors
that have no value yet. The n-th vector is the same one as before, so the values of those that are still needed are put
back from the file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from torch import Tensor

from ..basics.arrays import Vectors


class Vector:
    """A tensor `value` `[D]`, or None while time is replayed; + - * / by numbers and by each other make new ones.

    `number` is how many vectors were made before it.
    """

    __slots__ = ("__weakref__", "_ledger", "number", "value")

    def __init__(self, ledger: Ledger, number: int, value: Tensor | None) -> None:
        self._ledger, self.number, self.value = ledger, number, value

    @property
    def known(self) -> Tensor:
        """The value; `RuntimeError` if there is none."""
        self._ledger.use(self)
        if self.value is None:
            raise RuntimeError("the saved state lacks a model that the scheduler needs: is it of another scheduler?")
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

    def _with(self, act: Callable[[Any, Any], Any], a: Any, b: Any) -> Vector:
        self._ledger.use(a, b)
        a, b = (x.value if isinstance(x, Vector) else x for x in (a, b))
        return self._ledger.make(None if a is None or b is None else act(a, b))


class Ledger:
    """Gives vectors their numbers, and knows those that were in use after the server's last step.

    What is used after that step is kept until the next one, even if nobody needs it any more: a run that ends between
    two steps goes on from the last one.
    """

    def __init__(self) -> None:
        self._made = self._before = 0
        self._used: WeakValueDictionary[int, Vector] = WeakValueDictionary()
        self._kept: list[Vector] = []

    def step(self) -> None:
        """The server has made a step, and all that follows from it at once has been done."""
        self._before = self._made
        self._kept.clear()

    def use(self, *values: Any) -> None:
        """Keep those of these values until the next step that were made before the last one."""
        self._kept += (x for x in values if isinstance(x, Vector) and x.number < self._before)

    def make(self, value: Tensor | None) -> Vector:
        """The next vector."""
        vector = self._used[self._made] = Vector(self, self._made, value)
        self._made += 1
        return vector

    def saved(self) -> Vectors:
        """The values of the vectors that were in use after the last step, by their numbers."""
        used = [vector for number, vector in sorted(self._used.items()) if number < self._before]
        # Copies: two vectors may be one tensor, or the global model, and a file takes each tensor once only.
        return {f"{vector.number:012d}": vector.value.clone() for vector in used if vector.value is not None}

    def load(self, saved: Mapping[str, Tensor], like: Tensor) -> None:
        """Give the vectors in use the values that they had, on the device of `like`."""
        for number, value in saved.items():
            vector = self._used.get(int(number))
            if vector is not None:
                vector.value = value.to(like.device, copy=True)
