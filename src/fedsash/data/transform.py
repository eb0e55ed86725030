"""From raw samples to a model's input: augmentation and normalisation, in batches, on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..settings.errors import SettingError, check, raised_as
from ..settings.limits import CountFromZero
from ..settings.setting import Accepts, Setting, default
from ..vector.randomness import seed_torch, uniform
from .encoded import Features
from .inputs import Inputs, ModelInput, each

TRIED = 16
"""On so many samples a transform of one's own is tried before the first round."""


@dataclass(frozen=True)
class Transform(Setting, name="images"):
    """Random crop and flip for training; scaling to [0, 1] and normalisation always. Acts on uint8 images only.

    A channel `c` becomes `(x / 255 - mean[c]) / std[c]`; without `mean` and `std` it stays in [0, 1].

    A dataclass of your own that extends this one may replace `augment(x, keys)`, `prepare(x)` or both, for samples of
    any kind. `OwnTransform` makes one from functions. Engines never compile such a transform.

    Raises `SettingError` if `mean` and `std` differ in length, if a `std` is not positive, or if `crop` is negative.
    """

    mean: Accepts[tuple[float, ...], Sequence[float]] = default(())
    """what is subtracted from the numbers of each channel, which lie in [0, 1]; left out: nothing"""
    std: Accepts[tuple[float, ...], Sequence[float]] = default(())
    """what each channel is then divided by; left out: it is not. There must be as many numbers as in `mean`"""
    crop: CountFromZero = 0
    """the width in pixels of the black border that an image gets before a random part of the original size is used, in
    training; 0: no crop"""
    flip: bool = False
    """whether half of the images, drawn at random, are mirrored in training"""

    def __post_init__(self) -> None:
        check(len(self.mean) == len(self.std), "Transform.std", self.std, "must have as many numbers as mean")
        check(all(s > 0 for s in self.std), "Transform.std", self.std, "must be positive")

    @property
    def augments(self) -> bool:
        """Whether `augment` changes anything."""
        return self.crop > 0 or self.flip or type(self).augment is not Transform.augment

    @property
    def own(self) -> bool:
        """Whether it replaces `augment` or `prepare`."""
        return (type(self).augment, type(self).prepare) != (Transform.augment, Transform.prepare)

    def prepares(self, x: Features, dtype: torch.dtype) -> bool:
        """Whether `inputs` changes anything of samples like `x`."""
        if self.own:
            return True
        tensors: list[Any] = [x]
        if isinstance(x, Inputs):
            tensors = list(x.tensors.values())
        for tensor in tensors:
            if tensor.dtype == torch.uint8:
                return True
            if tensor.dtype.is_floating_point and tensor.dtype != dtype:
                return True
        return False

    def fits(self, x: Features, y: Tensor) -> None:
        """Raise `SettingError` unless this transform can act on the samples `x` with the labels `y`."""
        useless: tuple[str, ...] = ()
        requirement = ""
        if isinstance(x, Inputs):
            useless = ("mean", "std", "crop", "flip")
            requirement = "acts on uint8 images, and the data are several inputs"
        elif x.dtype != torch.uint8:
            useless = ("mean", "std", "crop", "flip")
            requirement = f"acts on uint8 images, and the data are {x.dtype} features"
        else:
            one_each = f"must have one number for each of {x.shape[-1]} channels"
            check(len(self.mean) in (0, x.shape[-1]), "Transform.mean", self.mean, one_each)
            if y.dim() > 2:
                useless = ("crop", "flip")
                requirement = "would move the images, and not the labels of their pixels"
        for name in useless:
            value = getattr(self, name)
            check(not value, f"Transform.{name}", value, requirement)

    def try_out(self, x: Features) -> None:
        """Raise `SettingError` unless the results of functions of one's own depend on each sample and its key alone.

        They are called three times with the first samples of `x`.
        """
        if self.own:
            first = torch.arange(min(TRIED, len(x)), device=x.device)
            self._try("augment", x[first], first + 1)
            self._try("prepare", x[first])

    def _try(self, name: str, x: ModelInput, *keys: Tensor) -> None:
        """Raise `SettingError` unless the method `name`, called with samples and perhaps `keys`, keeps its rules."""
        place = f"{type(self).__name__}.{name}"

        def results(count: int) -> list[Tensor]:
            """What the method makes of copies of the first samples."""
            samples = each(x, lambda tensor: tensor[:count].clone())
            with raised_as(lambda why: SettingError("", place, self, f"can't change samples of these data: {why}")):
                return _tensors(getattr(self, name)(samples, *(tensor[:count] for tensor in keys)))

        batch = results(TRIED)
        again = results(TRIED)
        single = results(1)
        if keys:
            before = [(tensor.shape, tensor.dtype) for tensor in _tensors(x)]
            after = [(tensor.shape, tensor.dtype) for tensor in batch]
            shapes = [list(tensor.shape) for tensor in batch]
            check(before == after, place, shapes, "must keep the shapes and types of the samples")
        source = "nothing but the samples"
        if keys:
            source = "its keys (see fedsash.data.draws)"
        repeats = all(len(a) == len(b) and torch.equal(a, b) for a, b in zip(batch, again, strict=True))
        check(repeats, place, self, f"two calls with the same samples differ: it must depend on {source}")
        separate = all(torch.allclose(a[:1], b, rtol=1e-3, atol=1e-5) for a, b in zip(batch, single, strict=True))
        requirement = "must treat each sample by itself: a sample alone has another result than in a batch"
        check(separate, place, self, requirement)

    def prepare(self, x: ModelInput) -> ModelInput:
        """Raw images, uint8 `[..., H, W, channels]`, as normalised float32 `[..., channels, H, W]`.

        The result is a view of channels-last memory. Features that are not uint8 pass through unchanged.
        """
        return each(x, self._normalised)

    def _normalised(self, x: Tensor) -> Tensor:
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
        """A batch as the model takes it: prepared, with floating-point numbers as `dtype`."""

        def converted(x: Tensor) -> Tensor:
            if x.is_floating_point():
                return x.to(dtype)
            return x

        return each(self.prepare(x), converted)

    def augment(self, x: Any, keys: Tensor) -> Any:
        """Crop and mirror raw images `x`, uint8 `[M, H, W, channels]`, as drawn by their `keys`, int64 `[M]`.

        The image is padded by `crop` black pixels on each side. All `(2 crop + 1)^2` crops of the original size are
        equally likely. With `flip`, the image is mirrored with probability 1/2. Both are pure functions of the key.
        Each sample of each local step has its own key, a function of (seed, round, client, step, place in the batch).
        """
        if not (self.crop or self.flip):
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


def draws(keys: Tensor, *shape: int) -> Tensor:
    """Uniform numbers in [0, 1), float32 `[M, *shape]`: a pure function of the keys, int64 `[M]`."""
    counter = torch.arange(prod(shape), device=keys.device).view(shape)
    return uniform(keys.view(-1, *(1,) * len(shape)), counter)


PLAIN = Transform()
"""The default: images become numbers in [0, 1], features stay as they are."""


TRANSFORMS = Transform.by_name
"""The registered transforms by name."""


@lru_cache(maxsize=32)
def _affine(
    mean: tuple[float, ...], std: tuple[float, ...], width: int, channels: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`scale` and `shift`, each `[width * channels]`, such that a row of pixels becomes `scale * row + shift`.

    The result is cached: a copy from host to device in every local step would cost more than the step's arithmetic.
    """
    m = torch.tensor(mean or (0.0,) * channels, dtype=torch.float64)
    s = torch.tensor(std or (1.0,) * channels, dtype=torch.float64)
    scale = (1 / (255 * s)).repeat(width)
    shift = (-m / s).repeat(width)
    return scale.float().to(device), shift.float().to(device)


@dataclass(frozen=True)
class OwnTransform(Transform):
    """Functions of one's own: `sample` changes single samples in training, `batch` prepares whole batches always.

    Federations raise `SettingError` if a function breaks its rule, or fails.
    """

    _: KW_ONLY
    sample: Callable[[Any], Any] | None = None
    """a function of one training sample as it is stored (an image as uint8 `[channels, H, W]`, features as they are,
    several inputs as a dict), which changes it at random. It returns a sample of the same shape and type. It may draw
    from PyTorch's global generator, and from no other. This one is seeded anew for each sample, by (seed, round,
    client, step, place in the batch), so every engine draws the same"""
    batch: Callable[[Any], Any] | None = None
    """a function of the samples of a batch, images as uint8 `[B, channels, H, W]`, which returns them as the model
    takes them. It draws nothing, and treats each sample by itself. Without it images are scaled and normalised as in
    `Transform`"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sample", "batch"):
            function = getattr(self, name)
            check(function is None or callable(function), f"OwnTransform.{name}", function, "must be a function")

    @property
    def augments(self) -> bool:
        return self.crop > 0 or self.flip or self.sample is not None

    def augment(self, x: Any, keys: Tensor) -> Any:
        """`sample` of each sample, after a crop and a flip."""
        x = super().augment(x, keys)
        if self.sample is None:
            return x
        changed = []
        devices = []
        if keys.is_cuda:
            devices.append(keys.device)
        with torch.random.fork_rng(devices):
            for i, key in enumerate(keys):
                seed_torch(key)
                changed.append(self.sample(_sample_of(x, i)))
        if isinstance(x, Tensor):
            return _stored(torch.stack(changed), x)
        return {name: _stored(torch.stack([one[name] for one in changed]), tensor) for name, tensor in x.items()}

    def prepare(self, x: ModelInput) -> Any:
        """`batch` of a batch."""
        if self.batch is None:
            return super().prepare(x)
        return self.batch(each(x, _channels_first))


def _tensors(x: ModelInput) -> list[Tensor]:
    """The tensors of an input."""
    if isinstance(x, Tensor):
        return [x]
    return list(x.values())


def _sample_of(x: ModelInput, i: int) -> ModelInput:
    """Sample i of a batch, as a function of one's own gets it."""
    return each(x, lambda tensor: _channels_first(tensor)[i])


def _channels_first(x: Tensor) -> Tensor:
    """Images `[..., H, W, channels]` as `[..., channels, H, W]`, as PyTorch's libraries do; features as they are."""
    if x.dtype == torch.uint8 and x.dim() > 3:
        return x.movedim(-1, -3)
    return x


def _stored(x: Tensor, like: Tensor) -> Tensor:
    """Changed samples in the form in which they are stored."""
    if like.dtype == torch.uint8 and like.dim() > 3:
        return x.movedim(-3, -1).contiguous()
    return x
