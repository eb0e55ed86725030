"""Functions of one's own that augment and prepare samples, such as those of torchvision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from ..settings.errors import check
from ..vector.randomness import seed_torch
from .inputs import ModelInput, each
from .transform import Transform


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
        with torch.random.fork_rng([keys.device] if keys.is_cuda else []):
            for i, key in enumerate(keys):
                seed_torch(key)
                changed.append(self.sample(each(x, lambda x, i=i: _seen(x)[i])))  # type: ignore[misc]
        if isinstance(x, Tensor):
            return _stored(torch.stack(changed), x)
        return {name: _stored(torch.stack([one[name] for one in changed]), own) for name, own in x.items()}

    def prepare(self, x: ModelInput) -> Any:
        """`batch` of a batch."""
        return super().prepare(x) if self.batch is None else self.batch(each(x, _seen))


def _seen(x: Tensor) -> Tensor:
    """Images `[..., H, W, channels]` as `[..., channels, H, W]`, as PyTorch's libraries do; features as they are."""
    return x.movedim(-1, -3) if x.dtype == torch.uint8 and x.dim() > 3 else x


def _stored(x: Tensor, like: Tensor) -> Tensor:
    """Changed samples in the form in which they are stored."""
    return x.movedim(-3, -1).contiguous() if like.dtype == torch.uint8 and like.dim() > 3 else x
