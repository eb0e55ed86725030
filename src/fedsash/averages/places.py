"""Where the models of a trajectory lie: as rows in memory, or as files on a disk."""

from __future__ import annotations

import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

import torch
from torch import Tensor

from ..vector import exact_sums
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces, rounded
from ..vector.saved import tensors
from ..vector.storage import Storage, check_room, chosen, mapped, rows
from ..vector.vector_files import VectorFile, allow

Sum = tuple[Tensor, Tensor]

_on_disk: WeakSet[Disk] = WeakSet()
"""All places of this process whose models are files."""


class Place(Protocol):
    """A place for models like `like` `[d]` by their rounds. They are kept in the type of `like`."""

    like: Tensor

    @property
    def rounds(self) -> Set[int]:
        """The rounds whose models are there."""

    def put(self, round: int, w: Pieces) -> None:
        """Keep a copy of the model `w` `[d]`."""

    def take(self, round: int, path: Path) -> None:
        """Keep the model that a saved state has in a file."""

    def __getitem__(self, round: int) -> Tensor:
        """The model `[d]`, a view."""

    def part(self, round: int) -> Vectors | VectorFile:
        """The model as a part of a saved state."""

    def drop(self, round: int, wipe: bool) -> None:
        """Forget the model; with `wipe`, its numbers are overwritten where nobody else has them."""

    def expect(self, round: int) -> None:
        """The model will be needed soon."""

    def zeros(self, like: Tensor) -> Sum:
        """The sum of no models like `like` `[d]` (see `exact_sums`)."""

    def another(self) -> Place:
        """An empty place like this one."""


class Memory:
    """Models as rows in memory. The row that was freed last is used next.

    If there are more than `capacity` models, another `capacity` rows are added.
    """

    def __init__(self, capacity: int, like: Tensor, storage: Storage) -> None:
        self.like = like
        self._settings = (capacity, like, storage)
        self._models: dict[int, Tensor] = {}
        self._free = self._block()

    @property
    def rounds(self) -> Set[int]:
        return self._models.keys()

    @property
    def room(self) -> int:
        """The number of its rows, used and free."""
        return len(self._models) + len(self._free)

    def put(self, round: int, w: Pieces) -> None:
        if round not in self._models:
            self._free = self._free or self._block()
            self._models[round] = self._free.pop()
        w.copy_to(self._models[round])

    def take(self, round: int, path: Path) -> None:
        self.put(round, Pieces.of(tensors(path)["w"]))

    def __getitem__(self, round: int) -> Tensor:
        return self._models[round]

    def part(self, round: int) -> Vectors:
        return {"w": self._models[round]}

    def drop(self, round: int, wipe: bool) -> None:
        row = self._models.pop(round)
        if wipe:
            row.zero_()
        self._free.append(row)

    def expect(self, round: int) -> None:
        pass

    def zeros(self, like: Tensor) -> Sum:
        return exact_sums.zero(like), exact_sums.zero(like)

    def another(self) -> Memory:
        return Memory(*self._settings)

    def _block(self) -> list[Tensor]:
        """New rows in reverse order, so that `pop` gives the first one; on the disk if memory has become short."""
        block = rows(*self._settings, reserve=True)
        return [_row_tensor(row) for row in reversed(block.unbind())]


def _row_tensor(row: Tensor) -> Tensor:
    """The row `[d]` as a tensor of its own in the same memory: `torch.save` writes all rows of a block for one."""
    if row.device.type != "cpu" or not row.numel():
        return row
    return torch.from_numpy(row.view(torch.uint8).numpy()).view(row.dtype)


class Disk:
    """Models as files in `folder` that have no names (see `VectorFile`); sums are mapped into memory from there, too.

    A model is copied into the system's cache and brought to the disk in the background, while the next round goes on.
    At most one model waits: `put` waits for the one before it, and raises the `OSError` that it has met.
    """

    def __init__(self, capacity: int, like: Tensor, folder: Path) -> None:
        self.like = like
        self._capacity = capacity
        self._folder = folder
        self._models: dict[int, VectorFile] = {}
        self._last: VectorFile | None = None
        """The file that was written last, which may still be on its way to the disk."""
        self._room = 0
        """How many models there may be without more open files than the system allows."""
        self._make_room()

    @property
    def rounds(self) -> Set[int]:
        return self._models.keys()

    def put(self, round: int, w: Pieces) -> None:
        if self._last is not None:
            self._last.settle()
        if round not in self._models and len(self._models) >= self._room:
            self._make_room()
        chunks = (rounded(chunk, self.like.dtype) for chunk in w.chunks(2**18))
        file = VectorFile.write(chunks, *self._length_and_type, self._folder)
        self._models[round] = file
        self._last = file

    def take(self, round: int, path: Path) -> None:
        self._models[round] = VectorFile.of(path, *self._length_and_type)

    def __getitem__(self, round: int) -> Tensor:
        return self._models[round].vector()

    def part(self, round: int) -> VectorFile:
        return self._models[round]

    def drop(self, round: int, wipe: bool) -> None:
        del self._models[round]

    def expect(self, round: int) -> None:
        self._models[round].ahead()

    def zeros(self, like: Tensor) -> Sum:
        if exact_sums.exact_device(like).type != "cpu":
            return exact_sums.zero(like), exact_sums.zero(like)
        row = like.new_empty(1, dtype=torch.float64).expand(len(like))
        high, low = mapped(2, row, self._folder, reserve=True)
        return high, low

    def another(self) -> Disk:
        return Disk(self._capacity, self.like, self._folder)

    def _make_room(self) -> None:
        """Make room for `capacity` models more: each is an open file, and another one while it is mapped."""
        models = self._room + self._capacity
        for other in _on_disk - {self}:
            models += other._room
        allow(2 * models)
        self._room += self._capacity
        _on_disk.add(self)

    @property
    def _length_and_type(self) -> tuple[int, torch.dtype]:
        return len(self.like), self.like.dtype


def place_for(capacity: int, w: Tensor, storage: Storage, folder: Path | None = None) -> Place:
    """A place for `capacity` models like `w` `[d]` in a `storage` (see `vector.storage`).

    On disk they lie in `folder`, or in the system's folder for temporary files. Raises `OSError` if the disk has too
    little free space for them. What `folder` holds already counts as free: a resumed run takes its models from there.
    """
    like = w.detach().new_empty(1).expand_as(w)  # its shape, type and device, without its memory
    bytes_of_all = capacity * w.numel() * w.element_size()
    if not w.numel() or chosen(bytes_of_all, storage, w.device) != "disk":
        return Memory(capacity, like, storage)
    disk_folder = folder or Path(tempfile.gettempdir())
    check_room(capacity, like, disk_folder, already=folder is not None)
    return Disk(capacity, like, disk_folder)
