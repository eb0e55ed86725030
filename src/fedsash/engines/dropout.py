"""Dropout whose masks are a pure function of a key, so that every engine draws the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..settings.errors import ModelError
from ..vector.private_torch import checkpointed
from ..vector.randomness import torch_states, uniform

_WITHOUT_BATCH: dict[Callable[..., Any], int | None] = {
    F.dropout: None,
    F.dropout1d: 2,
    F.dropout2d: None,
    F.dropout3d: 4,
}
"""For each dropout: the number of dimensions with which PyTorch treats an input as a single sample, or None."""


class SeededDropout(TorchFunctionMode):
    """While active, `nn.Dropout` and its 1d, 2d and 3d forms draw their masks by hashing `key` (an int64 tensor).

    The hash of (key, n, j) decides whether the n-th dropout layer of a forward pass keeps the element at flat position
    j. So padding a batch, or stacking clients, does not change the masks of the real samples, if the first dimension of
    the dropout's input is the batch; otherwise engines draw other masks. The 1d, 2d and 3d forms
    keep or drop whole channels, by the hash of (key, n, channel). Kept elements are scaled by 1/(1-p). `calls` is the
    number of dropout layers so far.

    Raises `ModelError` in a checkpoint of activations: its second pass comes after the mode has ended.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key = key
        self.calls: int = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        if func in _WITHOUT_BATCH:
            return self._dropout(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _dropout(
        self, func: Callable[..., Any], input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return input
        if checkpointed():
            raise ModelError(
                "dropout in a part of the model that torch.utils.checkpoint computes twice would have other masks the "
                "second time: take dropout out of that part, or do without checkpoint"
            )
        self.calls += 1
        masked = _masked_dimensions(func, input.dim())
        shape = input.shape[:masked] + (1,) * (input.dim() - masked)
        counter = torch.arange(shape.numel(), device=input.device).view(shape)
        keep = uniform(self._key + (self.calls << 48), counter) >= p
        scale = 0.0
        if p < 1:
            scale = 1 / (1 - p)
        mask = keep.to(input.dtype) * scale
        if inplace:
            return input.mul_(mask)
        return input * mask


def _masked_dimensions(func: Callable[..., Any], dimensions: int) -> int:
    """How many leading dimensions have their own masks (samples, channels); the spatial dimensions share one mask."""
    if func is F.dropout:
        return dimensions
    if dimensions == _WITHOUT_BATCH[func]:
        return 1
    return 2


def draws_dropout(forward: Callable[[], Any]) -> bool:
    """Whether a forward pass has an active dropout layer, or draws from PyTorch's own generators (dropout in an LSTM).

    A mode that sees every operation would tell, too, but makes PyTorch import its compiler, which takes as long as to
    import PyTorch.
    """
    mode = SeededDropout(torch.zeros((), dtype=torch.int64))
    before = torch_states()
    with torch.no_grad(), mode:
        forward()
    return mode.calls > 0 or not all(map(torch.equal, before, torch_states()))
