"""Dropout whose masks are a pure function of a key, so that every engine draws the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..randomness import uniform

_SPATIAL: dict[Callable[..., Any], int] = {F.dropout: 0, F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}
"""For each dropout, how many of the last dimensions share one draw."""


class SeededDropout(TorchFunctionMode):
    """While active, `nn.Dropout` and its 1d, 2d and 3d forms draw their masks by hashing `key` (an int64 tensor).

    The element at flat position j of the n-th dropout layer of a forward pass is kept if the hash of (key, n, j) says
    so; hence padding a batch, or stacking clients, leaves the masks of the real samples unchanged.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key = key
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _SPATIAL:
            return func(*args, **kwargs)
        return self._dropout(_SPATIAL[func], *args, **kwargs)

    def _dropout(self, spatial: int, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        self.calls += 1
        shape = x.shape[: x.dim() - spatial] + (1,) * spatial
        counter = torch.arange(shape.numel(), device=x.device).view(shape)
        keep = uniform(self._key + (self.calls << 48), counter) >= p
        return x * keep.to(x.dtype) / (1 - p) if p < 1 else torch.zeros_like(x)


def draws_dropout(forward: Callable[[], Any]) -> bool:
    """Whether a forward pass meets a dropout layer."""
    with torch.no_grad(), SeededDropout(torch.zeros((), dtype=torch.int64)) as mode:
        forward()
    return mode.calls > 0
