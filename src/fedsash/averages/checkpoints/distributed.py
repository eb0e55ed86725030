"""Folders of `torch.distributed.checkpoint`: `.metadata` says in which parts of which files each tensor lies.

`.metadata` is a bare pickle. It is read by an unpickler that knows the classes that belong there and runs none of them.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...settings.errors import ModelError, RunError, raised_as, some
from ...system.paths import inside, plain_file
from .formats import STEPS, TYPES, Flat, flat_numbers, says_optimising, says_training, whole_number

METADATA = ".metadata"
"""The name of the file that describes the folder."""

Trail = tuple[str | int, ...]
"""The keys that lead to an entry through nested dictionaries, such as `("model", "0.weight")`."""


class _Entry:
    """Stands for an instance of a class of `torch.distributed.checkpoint`: its attributes, without its code."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)
        self.state = state


class _Tensor(_Entry):
    """Stands for TensorStorageMetadata: the type, the shape and the parts of a tensor."""


class _Bytes(_Entry):
    """Stands for BytesStorageMetadata: an object that is no tensor."""


def _same(value: object = None) -> object:
    return value


def _member(of: object, name: str) -> str:
    """Stands for `getattr`, by which Python 3.11.0 to 3.11.3 pickle the member of an enumeration."""
    return name


def _path(*parts: str) -> tuple[str, ...]:
    return parts


_OF_CHECKPOINTS = "torch.distributed.checkpoint.metadata"
_OF_SHARDS = "torch.distributed._shard.sharded_tensor.metadata"

METADATA_CLASSES: dict[tuple[str, str], Any] = {
    (_OF_CHECKPOINTS, "Metadata"): _Entry,
    (_OF_CHECKPOINTS, "MetadataIndex"): _Entry,
    (_OF_CHECKPOINTS, "ChunkStorageMetadata"): _Entry,
    (_OF_CHECKPOINTS, "TensorStorageMetadata"): _Tensor,
    (_OF_CHECKPOINTS, "BytesStorageMetadata"): _Bytes,
    (_OF_CHECKPOINTS, "StorageMeta"): _Entry,
    (_OF_CHECKPOINTS, "TensorProperties"): _Entry,
    (_OF_CHECKPOINTS, "_MEM_FORMAT_ENCODING"): _same,
    (_OF_SHARDS, "TensorProperties"): _Entry,
    (_OF_SHARDS, "MEM_FORMAT_ENCODING"): _same,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _Entry,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _same,
    ("builtins", "getattr"): _member,
    ("collections", "OrderedDict"): OrderedDict,
    ("pathlib", "Path"): _path,
    ("pathlib", "PosixPath"): _path,
    ("pathlib", "WindowsPath"): _path,
    ("pathlib._local", "PosixPath"): _path,
    ("pathlib._local", "WindowsPath"): _path,
}
"""What `.metadata` may name, and what stands for it here."""

METADATA_CLASSES |= {("torch", str(dtype).removeprefix("torch.")): dtype for dtype in TYPES.values()}


@dataclass(frozen=True)
class _Strided:
    """How a tensor lies in a storage, in entries."""

    storage: tuple[Any, ...]
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def _strided(storage: Any, offset: int, shape: Any, stride: Any, *others: object) -> _Strided:
    """Stands for `torch._utils._rebuild_tensor_v2`."""
    return _Strided(storage, int(offset), tuple(shape), tuple(stride))


STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "ComplexFloatStorage": torch.complex64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
"""The types of PyTorch's classes of storages; newer types are in an `UntypedStorage`, and named beside it."""

TENSOR_CLASSES: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _strided,
    ("torch._utils", "_rebuild_tensor_v3"): _strided,
    ("torch.storage", "UntypedStorage"): None,
    ("collections", "OrderedDict"): OrderedDict,
}
"""What a saved tensor may name, and what stands for it here."""

TENSOR_CLASSES |= {("torch", name): dtype for name, dtype in STORAGES.items()}
TENSOR_CLASSES |= {("torch", str(dtype).removeprefix("torch.")): dtype for dtype in TYPES.values()}


class _Unpickler(pickle.Unpickler):
    """Reads a pickle that names nothing but the given classes, and makes what stands for them."""

    def __init__(self, file: io.BufferedIOBase, path: Path, classes: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(file)
        self.path = path
        self.classes = classes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.classes:
            raise ModelError(f"{self.path} names {module}.{name}, which does not belong there: it is not read")
        return self.classes[module, name]

    def persistent_load(self, identity: Any) -> Any:
        return identity


def _unpickled(content: bytes, path: Path, classes: Mapping[tuple[str, str], Any]) -> Any:
    """What the pickle holds. Raises `ModelError` for another class, and `RunError` if it is damaged."""
    with raised_as(lambda text: RunError(f"{path} is damaged: {text[:200]}")):
        return _Unpickler(io.BytesIO(content), path, classes).load()


@dataclass(frozen=True)
class _Record:
    """Bytes of a file that `torch.save` has written there, of one object."""

    file: Path
    start: int
    length: int


@dataclass(frozen=True)
class _Chunk:
    """A part of a tensor: its first entry's place and its shape."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    record: _Record


@dataclass(frozen=True)
class _Stored:
    """A tensor: its type, its shape, and the chunks that it consists of."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    chunks: list[_Chunk]


@dataclass
class DistributedFolder:
    """A folder of `torch.distributed.checkpoint`; `path` is its `.metadata`.

    `key` are the keys that lead to the model's state dictionary, with points between them, such as `app.model`.
    """

    path: Path
    key: str = ""
    left_out: list[str] = field(init=False, default_factory=list)
    trails: dict[str, Trail] = field(init=False, repr=False)
    stored: dict[str, _Stored] = field(init=False, repr=False)
    objects: dict[str, _Record] = field(init=False, repr=False)
    _views: dict[_Record, Tensor] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `RunError` if a file is damaged or missing, and `ModelError` for what does not belong there."""
        metadata = _unpickled(plain_file(self.path).read_bytes(), self.path, METADATA_CLASSES)
        with raised_as(lambda text: RunError(f"{self.path} is damaged: {text[:200]}")):
            self._describe(metadata)
        if not self.key:
            self.key = self._only_key()
        self._tensors = {str(self.trails[name][-1]): name for name in self.stored if self._key_of(name) == self.key}
        if not self._tensors:
            raise ModelError(f"{self.path} has no state dictionary {self.key!r}; it has {some(self._keys()) or 'none'}")
        self.left_out = self._others()

    def _describe(self, metadata: Any) -> None:
        """Take what is needed from the metadata."""
        trails = metadata.planner_data or {}
        records: dict[str, dict[tuple[int, ...] | None, _Record]] = {}
        for index, info in metadata.storage_data.items():
            offset = getattr(index, "offset", None)
            place = None if offset is None else tuple(offset)
            records.setdefault(index.fqn, {})[place] = self._record(info)
        self.trails = {}
        self.stored = {}
        self.objects = {}
        for name, entry in metadata.state_dict_metadata.items():
            self.trails[name] = tuple(trails.get(name, (name,)))
            if isinstance(entry, _Bytes):
                self.objects[name] = records[name][None]
            elif isinstance(entry, _Tensor):
                self.stored[name] = self._tensor_of(name, entry, records.get(name, {}))

    def _record(self, info: Any) -> _Record:
        if getattr(info, "transform_descriptors", None):
            raise ModelError(f"{self.path}: its files are compressed or changed otherwise, and can't be read")
        file = inside(self.path.parent, info.relative_path)
        if not file.is_file():
            raise RunError(f"{self.path} names the file {info.relative_path}, which is not there")
        if info.offset < 0 or info.length < 1 or info.offset + info.length > file.stat().st_size:
            raise RunError(f"{file} is shorter than {self.path} says")
        return _Record(file, info.offset, info.length)

    def _tensor_of(self, name: str, entry: Any, records: Mapping[tuple[int, ...] | None, _Record]) -> _Stored:
        """A tensor. Raises `RunError` if its chunks do not make the whole of it."""
        shape = tuple(entry.size)
        chunks = []
        for chunk in entry.chunks:
            offsets = tuple(chunk.offsets)
            ends = [offset + length for offset, length in zip(offsets, chunk.sizes, strict=True)]
            within = all(end <= most for end, most in zip(ends, shape, strict=True))
            if within and min(offsets, default=0) >= 0 and math.prod(chunk.sizes) > 0:
                chunks.append(_Chunk(offsets, tuple(chunk.sizes), records[offsets]))
        places = {chunk.offsets for chunk in chunks}
        entries = sum(math.prod(chunk.shape) for chunk in chunks)
        if entries != math.prod(shape) or len(places) < len(chunks):
            raise RunError(f"{self.path}: the parts of {name} do not make the whole of it")
        properties = entry.properties
        dtype = properties.state[0] if isinstance(properties.state, tuple) else properties.dtype
        return _Stored(dtype, shape, chunks)

    def _key_of(self, name: str) -> str:
        return ".".join(map(str, self.trails[name][:-1]))

    def _keys(self) -> list[str]:
        """The keys of what may be a model's state dictionary; a step alone, or numbers of a training, are none."""
        keys = dict[str, None]()
        for name, stored in self.stored.items():
            key = self._key_of(name)
            integers = not (stored.dtype.is_floating_point or stored.dtype.is_complex)
            beside = says_optimising(key) or (integers and says_training(key))
            if stored.shape and not beside:
                keys[key] = None
        return list(keys)

    def _only_key(self) -> str:
        keys = self._keys()
        if not keys:
            raise ModelError(f"{self.path} holds no state dictionary; its entries: {some(self.trails) or 'none'}")
        if len(keys) > 1:
            choice = some(key for key in keys if key)
            raise ModelError(f"{self.path} holds several state dictionaries: choose one of {choice} by its key")
        return keys[0]

    def _others(self) -> list[str]:
        """The first keys of all that is neither in the model nor a step."""
        others = dict[str, None]()
        for name, trail in self.trails.items():
            in_model = name in self.stored and self._key_of(name) == self.key
            if not in_model and not self._is_step(trail):
                others[str(trail[0])] = None
        return list(others)

    @staticmethod
    def _is_step(trail: Trail) -> bool:
        return len(trail) == 1 and trail[0] in STEPS

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    @cached_property
    def step(self) -> int | None:
        for name, trail in self.trails.items():
            if trail[-1] not in STEPS or says_training(self._key_of(name)):
                continue
            value: object = None
            if name in self.objects:
                value = self._object(name)
            elif not self.stored[name].shape:
                value = self._whole(name).item()
            step = whole_number(value)
            if step is not None:
                return step
        return None

    def _object(self, name: str) -> object:
        """An object that is no tensor; None if it is no plain one."""
        record = self.objects[name]
        content = self._maps[record.file][record.start : record.start + record.length]
        with raised_as(lambda text: RunError(f"{record.file} is damaged: {text[:200]}")):
            try:
                value: object = torch.load(io.BytesIO(content), weights_only=True)
            except pickle.UnpicklingError:
                return None
        return value

    def form(self, name: str) -> Tensor:
        stored = self.stored[self._tensors[name]]
        return torch.empty(stored.shape, dtype=stored.dtype, device="meta")

    def tensor(self, name: str) -> Tensor:
        return self._whole(self._tensors[name])

    def flat(self, name: str) -> Flat:
        stored = self.stored[self._tensors[name]]
        if len(stored.chunks) <= 1 or stored.dtype.is_complex:
            return flat_numbers(self.tensor(name))
        return _Joined(stored, self._mapped)

    def _whole(self, name: str) -> Tensor:
        stored = self.stored[name]
        if not stored.chunks:
            return torch.empty(stored.shape, dtype=stored.dtype)
        if len(stored.chunks) == 1:
            return self._mapped(stored.chunks[0], stored.dtype)
        return _Joined(stored, self._mapped)[0 : math.prod(stored.shape)].view(stored.shape)

    @cached_property
    def _maps(self) -> dict[Path, mmap.mmap]:
        """All files, mapped."""
        files = [chunk.record.file for stored in self.stored.values() for chunk in stored.chunks]
        files += [record.file for record in self.objects.values()]
        maps = {}
        for path in dict.fromkeys(files):
            with path.open("rb") as file:
                maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return maps

    def _mapped(self, chunk: _Chunk, dtype: torch.dtype) -> Tensor:
        """The numbers of a chunk, where they lie in the file."""
        if chunk.record not in self._views:
            self._views[chunk.record] = self._view(chunk, dtype)
        return self._views[chunk.record]

    def _view(self, chunk: _Chunk, dtype: torch.dtype) -> Tensor:
        """The numbers of a chunk, where they lie in the file: `torch.save` writes them as they are into a zip."""
        record = chunk.record
        mapped = self._maps[record.file]
        with raised_as(lambda text: RunError(f"{record.file} is damaged, or in another format: {text[:200]}")):
            with zipfile.ZipFile(_Window(mapped, record.start, record.length)) as saved:
                members = {info.filename.partition("/")[2]: info for info in saved.infolist()}
                tensor = _unpickled(saved.read(members["data.pkl"]), record.file, TENSOR_CLASSES)
            member = members[f"data/{tensor.storage[2]}"]
            if member.compress_type or tensor.shape != chunk.shape or tensor.storage[1] not in (dtype, None):
                raise RunError(f"{record.file} holds another tensor than {self.path} says")
            header = record.start + member.header_offset
            names = int.from_bytes(mapped[header + 26 : header + 28], "little")
            extra = int.from_bytes(mapped[header + 28 : header + 30], "little")
            start = header + 30 + names + extra
            entries = member.file_size // dtype.itemsize
            storage = torch.frombuffer(mapped, dtype=dtype, count=entries, offset=start)
            return storage.as_strided(tensor.shape, tensor.stride, tensor.offset)

    def filled(self, means: Mapping[str, Tensor]) -> dict[str, Any]:
        """The nested dictionaries with other tensors in the model's, and the step."""
        content: dict[str, Any] = {}
        for name, stored_name in self._tensors.items():
            place = content
            *keys, last = self.trails[stored_name]
            for key in keys:
                place = place.setdefault(str(key), {})
            place[str(last)] = means[name] if name in means else self.tensor(name)
        for name, trail in self.trails.items():
            if self._is_step(trail) and self.step is not None:
                content[name] = self.step
        return content


@dataclass
class _Joined:
    """A tensor of several chunks, flat; what is asked for is put together."""

    stored: _Stored
    mapped: Callable[[_Chunk, torch.dtype], Tensor]

    def numel(self) -> int:
        return math.prod(self.stored.shape)

    def __getitem__(self, entries: slice) -> Tensor:
        """The entries from `start` to `stop`, cut from the whole rows, by the first axis, in which they lie."""
        start, stop, _ = entries.indices(self.numel())
        length = math.prod(self.stored.shape[1:])
        first = start // length
        last = -(-stop // length)
        rows = torch.empty((last - first, *self.stored.shape[1:]), dtype=self.stored.dtype)
        for chunk in self.stored.chunks:
            begin = max(chunk.offsets[0], first)
            end = min(chunk.offsets[0] + chunk.shape[0], last)
            if begin >= end:
                continue
            target = rows[begin - first : end - first]
            for axis in range(1, len(chunk.shape)):
                target = target.narrow(axis, chunk.offsets[axis], chunk.shape[axis])
            source = self.mapped(chunk, self.stored.dtype)
            target.copy_(source[begin - chunk.offsets[0] : end - chunk.offsets[0]])
        return rows.view(-1)[start - first * length : stop - first * length]


class _Window(io.RawIOBase):
    """A part of a mapped file, as a file to read."""

    def __init__(self, mapped: mmap.mmap, start: int, length: int) -> None:
        self.mapped = mapped
        self.start = start
        self.length = length
        self.place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.length}[whence]
        self.place = max(begin + offset, 0)
        return self.place

    def read(self, size: int = -1) -> bytes:
        end = self.length if size < 0 else min(self.place + size, self.length)
        content = self.mapped[self.start + self.place : self.start + end]
        self.place = max(end, self.place)
        return content


def save(folder: Path, content: Mapping[str, Any]) -> None:
    """Write nested dictionaries of tensors into the folder, as one process saves them.

    Raises what went wrong in it, in place of `CheckpointException`, which no handler of `Exception` knows.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save as save_content

    failures: list[BaseException] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            save_content(dict(content), checkpoint_id=folder, no_dist=True)
        except CheckpointException as error:
            failures = [failure for failure, _ in error.failures.values()]
    if failures:
        raise failures[0]
