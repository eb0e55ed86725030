"""What lies in Ray's object store: values as bytes that processes share, and the state of clients."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.cloudpickle import CloudPickler
from ray.exceptions import ObjectLostError
from torch import Tensor

from ...client.store import Handle
from ...settings.errors import WorkerError
from ...vector.spaces import ClientState


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


@dataclass(eq=False)
class InCluster(Handle):
    """A handle on the state of `client` in Ray's object store, which keeps it for as long as its `ref` lives."""

    client: int = field(kw_only=True)
    ref: Any = field(kw_only=True)

    def vectors(self) -> ClientState:
        try:
            found: ClientState = unpacked(ray.get(self.ref))
        except ObjectLostError as error:
            if self.saved is None:
                lost = f"the state of client {self.client} was lost with its machine before it was saved"
                raise WorkerError(lost) from error
            return self.saved()
        return found


class Held:
    """Where the state behind each handle is in the cluster. What only the server has is put there when it is needed."""

    def __init__(self) -> None:
        self._put: WeakKeyDictionary[Handle, Any] = WeakKeyDictionary()

    def refs(self, handles: Iterable[Handle]) -> list[Any]:
        """The reference of each state."""
        return [self._ref(handle) for handle in handles]

    def mend(self, handles: Iterable[Handle]) -> None:
        """Put the saved copies of lost states into the cluster. Raises `WorkerError` if one was not saved."""
        for handle in handles:
            try:
                ray.get(self._ref(handle))
            except ObjectLostError:
                self._put[handle] = ray.put(packed(handle.vectors()))

    def _ref(self, handle: Handle) -> Any:
        if handle not in self._put and isinstance(handle, InCluster):
            return handle.ref
        if handle not in self._put:
            self._put[handle] = ray.put(packed(handle.vectors()))
        return self._put[handle]
