"""Client state that the cluster holds: an object for each client, where it was made, and a handle at the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import ray
from ray.exceptions import ObjectLostError

from ...client.store import Handle
from ...settings.errors import WorkerError
from ...vector.spaces import ClientState
from .packing import packed, unpacked


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
