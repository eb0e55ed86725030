"""From raw images to a model's input: augmentation and normalisation, in batches, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from ..basics.errors import check, check_count
from ..basics.randomness import uniform
from .encoded import EncodedImages
from .inputs import Inputs, ModelInput, each


@dataclass(frozen=True)
class Transform:
    """Random crop and flip for training; scaling to [0, 1] and normalisation always. Acts on uint8 images only.

    A channel `c` becomes `(x / 255 - mean[c]) / std[c]`; without `mean` and `std` it stays in [0, 1]. With `crop` the
    image gets a black border of so many pixels, and a random part of the original size is used (0: no crop). `flip`
    mirrors half of the images.

    Raises `SettingError` if `mean` and `std` differ in length, if a `std` is not positive, or if `crop` is negative.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(self.mean))
        object.__setattr__(self, "std", tuple(self.std))
        check(len(self.mean) == len(self.std), "Transform.std", self.std, "must have as many numbers as mean")
        check(all(s > 0 for s in self.std), "Transform.std", self.std, "must be positive")
        check_count("Transform.crop", self.crop, least=0)

    @property
    def augments(self) -> bool:
        """Whether `augment` changes anything."""
        return self.crop > 0 or self.flip

    def fits(self, x: Tensor | EncodedImages | Inputs) -> None:
        """Raise `SettingError` unless this transform can act on the samples `x`."""
        if not isinstance(x, Inputs) and x.dtype == torch.uint8:
            right = f"must have one number for each of {x.shape[-1]} channels"
            check(len(self.mean) in (0, x.shape[-1]), "Transform.mean", self.mean, right)
        else:
            kind = "several inputs" if isinstance(x, Inputs) else f"{x.dtype} features"
            check(self == PLAIN, "Transform", self, f"acts on uint8 images, and the data are {kind}")

    def prepare(self, x: Tensor) -> Tensor:
        """Raw images, uint8 `[..., H, W, channels]`, as normalised float32 `[..., channels, H, W]`.

        The result is a view of channels-last memory. Features that are not uint8 pass through unchanged.
        """
        if x.dtype != torch.uint8:
            return x
        width, channels = x.shape[-2:]
        # The compiler folds these constants by itself, but can't trace a cached function.
        affine = _affine.__wrapped__ if torch.compiler.is_compiling() else _affine
        scale, shift = affine(self.mean, self.std, width, channels, x.device)
        # Whole rows of pixels: broadcasting over only three channels is several times slower.
        rows = torch.addcmul(shift, x.flatten(-2).to(torch.float32), scale)
        return rows.view(x.shape).movedim(-1, -3)

    def inputs(self, x: ModelInput, dtype: torch.dtype) -> ModelInput:
        """A batch as the model takes it: images prepared, other floating-point numbers as `dtype`."""
        return each(x, lambda x: self.prepare(x).to(dtype) if _becomes_floats(x) else x)

    def augment(self, x: Tensor, keys: Tensor) -> Tensor:
        """Crop and mirror raw images `x`, uint8 `[M, H, W, channels]`, as drawn by their `keys`, int64 `[M]`.

        The image is padded by `crop` black pixels on each side. All `(2 crop + 1)^2` crops of the original size are
        equally likely. With `flip`, the image is mirrored with probability 1/2. Both are pure functions of the key.
        """
        if not self.augments:
            return x
        m, height, width, channels = x.shape
        draws = uniform(keys[:, None], torch.arange(3, device=x.device))
        top, left = (draws[:, :2] * (2 * self.crop + 1)).long().unbind(1)
        column = torch.arange(width, device=x.device).expand(m, width)
        if self.flip:
            column = torch.where(draws[:, 2:] < 0.5, width - 1 - column, column)

        padded = functional.pad(x, (0, 0, *(self.crop,) * 4))
        row = top[:, None] + torch.arange(height, device=x.device)
        row = torch.arange(m, device=x.device)[:, None] * padded.shape[1] + row
        pixel = row[:, :, None] * padded.shape[2] + (left[:, None] + column)[:, None, :]
        return padded.reshape(-1, channels).index_select(0, pixel.view(-1)).view_as(x)


def _becomes_floats(x: Tensor) -> bool:
    return x.is_floating_point() or x.dtype == torch.uint8


PLAIN = Transform()
"""The default: images become numbers in [0, 1], features stay as they are."""


@lru_cache(maxsize=32)
def _affine(
    mean: tuple[float, ...], std: tuple[float, ...], width: int, channels: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`scale` and `shift`, each `[width * channels]`, such that a row of pixels becomes `scale * row + shift`.

    The result is cached: a copy from host to device in every local step would cost more than the step's arithmetic.
    """
    m = torch.tensor(mean or (0.0,) * channels, dtype=torch.float64)
    s = torch.tensor(std or (1.0,) * channels, dtype=torch.float64)
    scale, shift = (1 / (255 * s)).repeat(width), (-m / s).repeat(width)
    return scale.float().to(device), shift.float().to(device)
