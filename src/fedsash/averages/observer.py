"""An average of a slice of the model, completed to a whole model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.layout import Layout
from ..settings.errors import check
from .base import Average


@dataclass(frozen=True)
class Observer:
    """Applies an average to a slice of the model's vector; the rest of its value is the current model.

    `ranges` are the ascending index ranges of the slice in `w` `[D]` (WiMA's Table 5: a window over the classifier
    only, or over the feature extractor only). Raises `ValueError` if they are not ascending, or empty. `init` and
    `value` are those of `Average`, for whole models `[D]`; `past` holds slices `[d]`.
    """

    average: Average
    ranges: list[tuple[int, int]]

    def __post_init__(self) -> None:
        bounds = [bound for pair in self.ranges for bound in pair]
        ascending = bool(bounds) and bounds[0] >= 0 and bounds == sorted(bounds)
        check(ascending, "Observer.ranges", self.ranges, "must be ascending ranges (start, stop), at least one")

    @classmethod
    def of(cls, average: Average, layout: Layout, stays: Collection[str] = ()) -> Observer:
        """The average of its part of models with this layout, without the tensors that `stays` names.

        Raises `SettingError` if they have no such part, or if nothing of it is left.
        """
        taken = partial(layout.ranges, average.part, statistics=average.buffers == "average")
        right = "has nothing but running statistics, which this average does not take: buffers = 'average' takes them"
        check(bool(taken()), "part", average.part, right)
        ranges = taken(but=stays)
        check(bool(ranges), "part", average.part, "stays with the clients: name a part that they share")
        return cls(average, ranges)

    def init(self, w: Tensor) -> Vectors:
        """The average's state for models like `w` `[D]`."""
        return self.average.init(self.slice(w))

    def value(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        """The current model `w` `[D]` with its slice replaced by the average, as a new vector `[D]`."""
        mean = self.average.value(state, self.slice(w), past)
        if mean.shape == w.shape:
            return mean
        whole = w.detach().clone()
        for (start, stop), piece in zip(self.ranges, torch.split(mean, self._lengths()), strict=True):
            whole[start:stop] = piece
        return whole

    def slice(self, w: Tensor) -> Tensor:
        """The slice `[d]` of a model `[D]`; it is a view if it is a single range."""
        pieces = [w[start:stop] for start, stop in self.ranges]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def part(self, w: Tensor) -> str:
        """A short name of the slice of models like `w` `[D]`: `"all"` for the whole model, else a hash of ranges."""
        if self._lengths() == [len(w)]:
            return "all"
        return hashlib.sha256(json.dumps(self.ranges).encode()).hexdigest()[:12]

    def _lengths(self) -> list[int]:
        return [stop - start for start, stop in self.ranges]
