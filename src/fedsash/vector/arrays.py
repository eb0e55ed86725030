"""Type names for common arrays and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def check_like(owner: object, field: str, value: Tensor, like: Tensor) -> Tensor:
    """The value that code of one's own has returned; raises `SettingError` unless it has shape and type of `like`.

    The error names the class of `owner` and the `field`.
    """
    if isinstance(value, Tensor) and value.shape == like.shape and value.dtype == like.dtype:
        return value  # so that no text is put together in every round
    place = f"{type(owner).__name__}.{field}"
    if not isinstance(value, Tensor):
        raise SettingError.at(place, type(value).__name__, "must be a tensor")
    if value.shape != like.shape:  # PyTorch would spread one number over all parameters without a word
        raise SettingError.at(f"{place}: shape", list(value.shape), f"must be {list(like.shape)}")
    # A saved state of another type could not be loaded again.
    raise SettingError.at(f"{place}: type", str(value.dtype), f"must be {like.dtype}")


def equal_parts(count: int, parts: int) -> list[int]:
    """The ends of successive parts of `count` things. The parts are as equal as possible, larger ones first."""
    size, remainder = divmod(count, parts)
    return [k * size + min(k, remainder) for k in range(1, parts + 1)]


def check_tensors(owner: object, field: str, vectors: Vectors) -> None:
    """Raise `SettingError` unless all vectors that code of one's own has returned are tensors."""
    for name, value in vectors.items():
        if not isinstance(value, Tensor):
            place = f"{type(owner).__name__}.{field}: {name}"
            raise SettingError.at(place, type(value).__name__, "must be a tensor, as by torch.tensor(...)")


def check_rows(owner: object, field: str, vectors: Vectors, count: int) -> None:
    """Raise `SettingError` unless all vectors have a row for each of `count` clients, of which a mean can be taken."""
    check_tensors(owner, field, vectors)
    for name, value in vectors.items():
        if value.dim() > 0 and len(value) == count and value.is_floating_point():
            continue
        place = f"{type(owner).__name__}.{field}: {name}"
        if not value.is_floating_point():
            raise SettingError.at(f"{place}: type", str(value.dtype), "must be floating-point, since its mean is taken")
        raise SettingError.at(f"{place}: shape", list(value.shape), f"must be [C, ...], and C is {count} here")


def writable(tensor: Tensor) -> bool:
    """Whether each of its entries has a place of its own in memory: it is neither sparse nor expanded."""
    if tensor.layout is not torch.strided:
        return False
    return all(step > 0 or size <= 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def unshared(vectors: Vectors, others: Iterable[Tensor]) -> Vectors:
    """The vectors, as copies if they lie in the memory of `others`, or of each other."""
    addresses = {tensor.untyped_storage().data_ptr() for tensor in others}
    apart: Vectors = {}
    for name, value in vectors.items():
        address = value.untyped_storage().data_ptr()
        if address in addresses:
            value = value.clone()
        addresses.add(address)
        apart[name] = value
    return apart


def first_rows(vectors: Vectors, count: int) -> Vectors:
    """The first `count` rows of each vector; the same tensors if there are no more."""
    first = {}
    for name, rows in vectors.items():
        first[name] = rows if len(rows) == count else rows[:count]
    return first


def stacked(clients: Sequence[Vectors]) -> Vectors:
    """The vectors `[...]` of C clients as rows of new tensors `[C, ...]`; no vectors if there is no client."""
    if not clients:
        return {}
    names = clients[0]
    return {name: torch.stack([vectors[name] for vectors in clients]) for name in names}


def joined(blocks: Sequence[Vectors]) -> Vectors:
    """The rows of several blocks of clients, one block after the other, in new tensors; no vectors without a block."""
    if not blocks:
        return {}
    names = blocks[0]
    return {name: torch.cat([block[name] for block in blocks]) for name in names}
