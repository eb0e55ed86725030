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
        for name in ("y", "domain", "user", "coarse"):
            if (numbers := getattr(self, name)) is not None:
                right = "must be int64 or of a floating-point type" if name == "y" else "must be int64"
                suits = numbers.dtype == torch.int64 or (name == "y" and numbers.is_floating_point())
                check(suits, f"Samples.{name}", numbers.dtype, right)
                shape = tuple(numbers.shape)
                right = f"must be one number for each of {len(self.x)}"
                check(shape[:1] == (len(self.x),) and (name == "y" or len(shape) == 1), f"Samples.{name}", shape, right)

    @staticmethod
    def _check_tensor(x: Tensor | EncodedImages) -> None:
        check(x.ndim > 0, "Samples.x", tuple(x.shape), "must hold at least one sample")
        check(0 not in x.shape[1:], "Samples.x", tuple(x.shape), "a sample must hold at least one number")
        images = x.dtype != torch.uint8 or (x.ndim == 4 and x.shape[-1] <= 4)
        right = "uint8 data must be images [n, height, width, channels]; give other features as float"
        check(images, "Samples.x", tuple(x.shape), right)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Tensor) -> Samples:
        """The samples at `index` (int64 or bool), in that order."""
        return self._each(lambda x: x[index] if isinstance(x, Tensor) else x.only(index))

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on `device`; these samples if they are there."""
        return self if self.y.device == self.x.device == torch.device(device) else self._each(lambda x: x.to(device))

    def cast(self, dtype: torch.dtype, integers: bool) -> Samples:
        """The same samples with floating-point features and labels as `dtype`; with `integers`, integer features stay.

        Images stay as they are, and so do floating-point features in a mapped file: their batches are converted.
        """

        # Among several inputs, bool tensors are masks.
        numbers = (torch.int64,) if isinstance(self.x, Inputs) else (torch.int64, torch.bool)

        def converted(x: Tensor) -> Tensor:
            if isinstance(x, MappedTensor) and x.is_floating_point():
                return x
            return x.to(dtype) if x.is_floating_point() or (x.dtype in numbers and not integers) else x

        x = self.x
        if isinstance(x, Inputs):
            x = x.each(converted)
        elif isinstance(x, Tensor):
            x = converted(x)
        y = self.y.to(dtype) if self.y.is_floating_point() else self.y
        return self if x is self.x and y is self.y else replace(self, x=x, y=y)

    def like(self, train: Samples, place: str) -> Samples:
        """These samples beside the training samples: whole numbers become floating-point numbers where theirs are.

        Raises `SettingError`, naming the `place`, if they differ in shape, if only one of both has images, or if only
        one has whole numbers as labels.
        """
        shape = _sample_shape(self.x)
        wanted = _sample_shape(train.x)
        check(shape == wanted, f"{place}.x", shape, f"a sample must have the training samples' {wanted}")
        y = self.y
        theirs = train.y
        right = "must have the type and the shape of the training samples' labels"
        same = y.dtype.is_floating_point == theirs.dtype.is_floating_point and y.shape[1:] == theirs.shape[1:]
        check(same, f"{place}.y", f"{y.dtype} {list(y.shape)}", right)
        own = _by_name(self.x)
        types = {name: x.dtype for name, x in _by_name(train.x).items()}
        for name, x in own.items():
            right = f"the training samples are {types[name]}: both must be images, or neither"
            check((x.dtype == torch.uint8) == (types[name] == torch.uint8), f"{place}.x", x.dtype, right)
        as_theirs = {name: _as_numbers(x, types[name]) for name, x in own.items()}
        if all(as_theirs[name] is x for name, x in own.items()):
            return self
        return replace(self, x=Inputs(as_theirs) if isinstance(self.x, Inputs) else as_theirs[""])

    @cached_property
    def not_finite(self) -> int | None:
        """The first sample with a feature that is not finite, or None. All are read once."""
        tensors = self.x.tensors.values() if isinstance(self.x, Inputs) else (self.x,)
        found = [_not_finite(x) for x in tensors if isinstance(x, Tensor) and x.is_floating_point()]
        return min((first for first in found if first is not None), default=None)

    def _each(self, change: Callable[[Features], Any]) -> Samples:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return Samples(**{name: change(x) for name, x in given.items() if x is not None})


def _sample_shape(x: Features) -> object:
    return {name: shape[1:] for name, shape in x.shape.items()} if isinstance(x, Inputs) else tuple(x.shape[1:])


def _by_name(x: Features) -> dict[str, Any]:
    return x.tensors if isinstance(x, Inputs) else {"": x}


def _as_numbers(x: Any, dtype: torch.dtype) -> Any:
    """Whole numbers as `dtype` if that is a floating-point type; `x` itself otherwise."""
    whole = x.dtype in (torch.int64, torch.bool) and dtype.is_floating_point
    return x.to(dtype) if whole else x


def _not_finite(x: Tensor) -> int | None:
    """The first row of `x` `[n, ...]` with a number that is not finite, or None; it takes the memory of some rows."""
    rows = max(CHUNK // max(x[0].numel(), 1), 1)
    for first, part in zip(range(0, len(x), rows), torch.split(x, rows), strict=True):
        if not bool(torch.isfinite(torch.stack(torch.aminmax(part))).all()):
            return first + int((~torch.isfinite(part.reshape(len(part), -1)).all(1)).int().argmax())
    return None
