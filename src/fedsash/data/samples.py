"""Labelled samples on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..settings.errors import check
from ..vector.shown import Shown
from .encoded import EncodedImages, Features
from .inputs import Inputs
from .mapped import MappedTensor

CHUNK = 2**22
"""So many numbers are looked at together."""
Scales = tuple[tuple[float, float], ...]
"""The mean and the deviation of each feature, before it was standardised."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Shown):
    """`n` labelled samples on one device.

    `x` holds raw images, uint8 `[n, H, W, channels]`, or `EncodedImages` of this shape, or features of any other type,
    `[n, ...]`, or `Inputs` with several tensors. Images have their channels last, so that a batch `x[idx]` becomes a
    channels-last batch without a copy. `y` holds the labels, `[n]` or `[n, ...]`, int64 or of a floating-point type.
    Where the data have them, `domain`, `user` and `coarse` hold the numbers of each sample's domain, user and coarse
    label, int64 `[n]`.

    Raises `SettingError` if there is no sample, if the lengths differ, or if uint8 data are not images.
    """

    x: Features
    y: Tensor
    domain: Tensor | None = None
    user: Tensor | None = None
    coarse: Tensor | None = None

    def __post_init__(self) -> None:
        if isinstance(self.x, Inputs):
            for tensor in self.x.tensors.values():
                self._check_tensor(tensor)
        else:
            self._check_tensor(self.x)
        check(len(self.x) > 0, "Samples.x", tuple(self.x.shape), "must hold at least one sample")
        are_labels = self.y.dtype == torch.int64 or self.y.is_floating_point()
        check(are_labels, "Samples.y", self.y.dtype, "must be int64 or of a floating-point type")
        self._check_length("y", self.y)
        for name in ("domain", "user", "coarse"):
            numbers = getattr(self, name)
            if numbers is not None:
                check(numbers.dtype == torch.int64, f"Samples.{name}", numbers.dtype, "must be int64")
                self._check_length(name, numbers)
                check(numbers.ndim == 1, f"Samples.{name}", tuple(numbers.shape), self._one_each)

    @property
    def _one_each(self) -> str:
        return f"must be one number for each of {len(self.x)}"

    def _check_length(self, name: str, numbers: Tensor) -> None:
        shape = tuple(numbers.shape)
        check(shape[:1] == (len(self.x),), f"Samples.{name}", shape, self._one_each)

    @staticmethod
    def _check_tensor(x: Tensor | EncodedImages) -> None:
        check(x.ndim > 0, "Samples.x", tuple(x.shape), "must hold at least one sample")
        check(0 not in x.shape[1:], "Samples.x", tuple(x.shape), "a sample must hold at least one number")
        suits = x.dtype != torch.uint8 or (x.ndim == 4 and x.shape[-1] <= 4)
        requirement = "uint8 data must be images [n, height, width, channels]; give other features as float"
        check(suits, "Samples.x", tuple(x.shape), requirement)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Tensor) -> Samples:
        """The samples at `index` (int64 or bool), in that order."""

        def chosen(values: Features) -> Any:
            if isinstance(values, Tensor):
                return values[index]
            return values.only(index)

        return self._each(chosen)

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on `device`; these samples if they are there."""
        if self.y.device == self.x.device == torch.device(device):
            return self
        return self._each(lambda values: values.to(device))

    def cast(self, dtype: torch.dtype, integers: bool) -> Samples:
        """The same samples with floating-point features and labels as `dtype`; with `integers`, integer features stay.

        Images stay as they are, and so do floating-point features in a mapped file: their batches are converted.
        """
        to_numbers: tuple[torch.dtype, ...] = ()
        if not integers and isinstance(self.x, Inputs):
            to_numbers = (torch.int64,)  # among several inputs, bool tensors are masks
        elif not integers:
            to_numbers = (torch.int64, torch.bool)

        def converted(x: Tensor) -> Tensor:
            if x.is_floating_point() and isinstance(x, MappedTensor):
                return x
            if x.is_floating_point() or x.dtype in to_numbers:
                return x.to(dtype)
            return x

        x = self.x
        if isinstance(x, Inputs):
            x = x.each(converted)
        elif isinstance(x, Tensor):
            x = converted(x)
        y = self.y
        if y.is_floating_point():
            y = y.to(dtype)
        if x is self.x and y is self.y:
            return self
        return replace(self, x=x, y=y)

    def like(self, train: Samples, place: str) -> Samples:
        """These samples beside the training samples: whole numbers become floating-point numbers where theirs are.

        Raises `SettingError`, naming the `place`, if they differ in shape, if only one of both has images, or if only
        one has whole numbers as labels.
        """
        shape = _sample_shape(self.x)
        expected = _sample_shape(train.x)
        check(shape == expected, f"{place}.x", shape, f"a sample must have the training samples' {expected}")
        y = self.y
        are_alike = y.is_floating_point() == train.y.is_floating_point() and y.shape[1:] == train.y.shape[1:]
        requirement = "must have the type and the shape of the training samples' labels"
        check(are_alike, f"{place}.y", f"{y.dtype} {list(y.shape)}", requirement)
        train_types = {name: x.dtype for name, x in _by_name(train.x).items()}
        converted = {}
        changed = False
        for name, x in _by_name(self.x).items():
            dtype = train_types[name]
            requirement = f"the training samples are {dtype}: both must be images, or neither"
            check((x.dtype == torch.uint8) == (dtype == torch.uint8), f"{place}.x", x.dtype, requirement)
            converted[name] = x
            if x.dtype in (torch.int64, torch.bool) and dtype.is_floating_point:
                converted[name] = x.to(dtype)
                changed = True
        if not changed:
            return self
        if isinstance(self.x, Inputs):
            return replace(self, x=Inputs(converted))
        return replace(self, x=converted[""])

    @cached_property
    def not_finite(self) -> int | None:
        """The first sample with a feature that is not finite, or None. All are read once."""
        rows = []
        for x in _by_name(self.x).values():
            if isinstance(x, Tensor) and x.is_floating_point():
                row = _not_finite(x)
                if row is not None:
                    rows.append(row)
        return min(rows, default=None)

    def _each(self, change: Callable[[Features], Any]) -> Samples:
        """The samples with every field changed."""
        changed = {}
        for field in fields(self):
            values = getattr(self, field.name)
            if values is not None:
                changed[field.name] = change(values)
        return Samples(**changed)


def _sample_shape(x: Features) -> object:
    """The shape of one sample, or the shapes of its inputs by name."""
    if isinstance(x, Inputs):
        return {name: shape[1:] for name, shape in x.shape.items()}
    return tuple(x.shape[1:])


def _by_name(x: Features) -> dict[str, Any]:
    """The tensors, or encoded images, by name; a single one has the name ""."""
    if isinstance(x, Inputs):
        return x.tensors
    return {"": x}


def _not_finite(x: Tensor) -> int | None:
    """The first row of `x` `[n, ...]` with a number that is not finite, or None; it takes the memory of some rows."""
    rows = max(CHUNK // max(x[0].numel(), 1), 1)
    for start in range(0, len(x), rows):
        part = x[start : start + rows]
        # A nan or an infinite number shows in the extremes, which take no memory.
        if not bool(torch.isfinite(torch.stack(torch.aminmax(part))).all()):
            is_finite = torch.isfinite(part.reshape(len(part), -1)).all(1)
            return start + int((~is_finite).int().argmax())
    return None
