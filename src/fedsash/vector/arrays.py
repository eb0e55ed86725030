"""Type names for common arrays and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings.errors import SettingError

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

Objects: TypeAlias = NDArray[np.object_]

Vectors: TypeAlias = dict[str, Tensor]
"""Named tensors: `[D]` (or any shape) at the server; with a first dimension `C` for C clients side by side."""


def check_like(owner: object, place: str, found: Tensor, like: Tensor) -> Tensor:
    """What code of one's own has `found`; raises `SettingError` unless it is a tensor with shape and type of `like`.

    It is named by the class of `owner` and the `place`.
    """
    if isinstance(found, Tensor) and found.shape == like.shape and found.dtype == like.dtype:
        return found  # so that no text is put together in every round
    place = f"{type(owner).__name__}.{place}"
    if not isinstance(found, Tensor):
        raise SettingError.at(place, type(found).__name__, "must be a tensor")
    if found.shape != like.shape:  # PyTorch would spread one number over all parameters without a word
        raise SettingError.at(f"{place}: shape", list(found.shape), f"must be {list(like.shape)}")
    # A saved state of another type could not be loaded again.
    raise SettingError.at(f"{place}: type", str(found.dtype), f"must be {like.dtype}")


def equal_parts(count: int, parts: int) -> list[int]:
    """The ends of successive parts of `count` things. The parts are as equal as possible, larger ones first."""
    size, larger = divmod(count, parts)
    return [k * size + min(k, larger) for k in range(1, parts + 1)]


def writable(tensor: Tensor) -> bool:
    """Whether each of its entries has a place of its own in memory: it is neither sparse nor expanded."""
    if tensor.layout is not torch.strided:
        return False
    return all(step > 0 or size <= 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def first_rows(vectors: Vectors, count: int) -> Vectors:
    """The first `count` rows of each vector; the same tensors if there are no more."""
    return {name: rows if len(rows) == count else rows[:count] for name, rows in vectors.items()}


def stacked(rows: Sequence[Vectors]) -> Vectors:
    """The vectors of several clients as rows of new tensors; nothing of nobody."""
    return {name: torch.stack([row[name] for row in rows]) for name in (rows[0] if rows else {})}


def joined(blocks: Sequence[Vectors]) -> Vectors:
    """The rows of several blocks as those of new tensors; nothing of no block."""
    return {name: torch.cat([block[name] for block in blocks]) for name in (blocks[0] if blocks else {})}
