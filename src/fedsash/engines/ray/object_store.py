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
    pickled = list[pickle.PickleBuffer]()
    _Pickler(file, protocol=5, buffer_callback=pickled.append).dump(value)
    buffers = [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in pickled]
    return Packed(file.getvalue(), buffers)


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
    """A tensor from its bytes."""
    return torch.from_numpy(flat).view(dtype).view(shape)


@dataclass(eq=False)
class InCluster(Handle):
    """A handle on the state of `client` in Ray's object store, which keeps it for as long as its `ref` lives."""

    client: int = field(kw_only=True)
    ref: Any = field(kw_only=True)

    def vectors(self) -> ClientState:
        try:
            client_state: ClientState = unpacked(ray.get(self.ref))
        except ObjectLostError as error:
            if self.saved is None:
                message = f"the state of client {self.client} was lost with its machine before it was saved"
                raise WorkerError(message) from error
            return self.saved()
        return client_state


class ClusterStates:
    """The client state in the cluster, by its handles. What only the server has is put there when it is needed."""

    def __init__(self) -> None:
        # The references of what this process has put into the cluster, for as long as their handles live.
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
        """The reference of a state, which is put into the cluster if it is not there."""
        if handle in self._put:
            return self._put[handle]
        if isinstance(handle, InCluster):
            return handle.ref
        ref = ray.put(packed(handle.vectors()))
        self._put[handle] = ref
        return ref
