"""Values with tensors as bytes and arrays. Ray's object store shares arrays between processes without a copy."""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.cloudpickle import CloudPickler
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packed:
    """A value whose tensors and arrays are in `buffers`, and all the rest in `content`."""

    content: bytes
    buffers: list[NDArray[np.uint8]]


def packed(value: Any) -> Packed:
    """A value, ready to be sent; its tensors must be on the CPU."""
    file = io.BytesIO()
    buffers = list[pickle.PickleBuffer]()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return Packed(file.getvalue(), [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers])


def unpacked(packed: Packed) -> Any:
    """The value. Its tensors share the memory of `packed`, and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return pickle.loads(packed.content, buffers=packed.buffers)


def copied(packed: Packed) -> Packed:
    """The same in memory of its own, which can be written to."""
    return Packed(packed.content, [buffer.copy() for buffer in packed.buffers])


class _Pickler(CloudPickler):  # type: ignore[misc]  # Ray has no types
    """Takes tensors as arrays, and everything else as Ray does."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Tensor or value.requires_grad:
            return super().reducer_override(value)
        flat = value.contiguous().reshape(-1).view(torch.uint8)
        return _tensor, (flat.numpy(), value.dtype, value.shape)


def _tensor(flat: NDArray[np.uint8], dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.from_numpy(flat).view(dtype).view(shape)
