"""Vectors on disk: a file each, written once, without a name until a saved state gives it one."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

import torch
from torch import Tensor

from ..system import posix
from ..system.host import NEW, host, nameless, opened, write_all

ONCE = 1 << 20
"""How many bytes are read at a time."""
USUAL = 512
"""How many files a process may need beside vectors."""

_open: WeakSet[VectorFile] = WeakSet()


class VectorFile:
    """A vector `[d]` in a file that never changes: the bytes of safetensors' `save_file({"w": vector})`.

    A new file has no name, so it is gone when its process ends in any way, and nobody can take half of it for a whole.
    A thread in the background brings it to the disk and computes its checksum. If this fails, `vector`, `settle` and
    `save` raise the `OSError`.
    """

    def __init__(self, handle: int, d: int, dtype: torch.dtype) -> None:
        self._handle = handle
        self._d = d
        self._dtype = dtype
        self._start = os.fstat(handle).st_size - d * dtype.itemsize
        self._settled: Future[int] | None = None
        self._close = finalize(self, os.close, handle)
        _open.add(self)

    @classmethod
    def write(cls, chunks: Iterable[Tensor], d: int, dtype: torch.dtype, folder: Path) -> VectorFile:
        """A new file in `folder` for the vector `[d]` that lies in `chunks`, of `dtype`.

        It is in the system's cache when this returns. Raises `OSError`, for example if the disk is full.
        """
        with _named(folder):
            handle = nameless(folder)
            try:
                os.fchmod(handle, folder.stat().st_mode & 0o666)
                write_all(handle, _header(d, dtype))
                for chunk in chunks:
                    write_all(handle, chunk.contiguous().cpu().view(torch.uint8).numpy().data)
            except BaseException:  # such as Ctrl-C
                os.close(handle)
                raise
        file = cls(handle, d, dtype)
        file._settled = host.process.background().submit(file._bring_to_disk, folder)
        return file

    @classmethod
    def of(cls, path: Path, d: int, dtype: torch.dtype) -> VectorFile:
        """The file of a saved state, whose vector is `[d]`, of `dtype`. It may be removed meanwhile."""
        return cls(host.disk.open(path, os.O_RDONLY | os.O_CLOEXEC), d, dtype)

    def vector(self) -> Tensor:
        """The vector `[d]`, mapped into memory; changes of it stay in memory."""
        if self._settled is not None and self._settled.done():
            self._settled.result()
        if not self._d:
            return torch.empty(0, dtype=self._dtype)
        mapped = mmap.mmap(self._handle, 0, access=mmap.ACCESS_COPY)
        return torch.frombuffer(mapped, dtype=self._dtype, count=self._d, offset=self._start)

    def settle(self) -> int:
        """Wait until the file is on the disk; returns its checksum (CRC-32)."""
        if self._settled is None:
            return self._checksum()
        return self._settled.result()

    def save(self, path: Path) -> int:
        """Give the file another name, or make a copy where that is impossible; returns its checksum."""
        checksum = self.settle()
        try:
            host.disk.link_open(self._handle, path)
        except OSError:
            with opened(path, NEW) as copy:
                for piece in self._pieces():
                    write_all(copy, piece)
        return checksum

    def ahead(self) -> None:
        """Let the system read it in the background."""
        if hasattr(os, "posix_fadvise"):  # not on macOS
            host.process.background().submit(self._read_ahead)

    def _bring_to_disk(self, folder: Path) -> int:
        with _named(folder):
            host.disk.sync(self._handle)
        return self._checksum()

    def _read_ahead(self) -> None:
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_WILLNEED)

    def _checksum(self) -> int:
        value = 0
        for piece in self._pieces():
            value = zlib.crc32(piece, value)
        return value

    def _pieces(self) -> Iterator[bytes]:
        """The bytes of the file, one piece after another."""
        offset = 0
        while piece := os.pread(self._handle, ONCE, offset):
            yield piece
            offset += len(piece)

    def __deepcopy__(self, memo: dict[int, Any]) -> VectorFile:
        return self

    def __reduce__(self) -> Any:
        """Another process writes a file of its own, in the system's folder for temporary files."""
        return VectorFile.write, ([self.vector()], self._d, self._dtype, Path(tempfile.gettempdir()))


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Let an `OSError` say what could not be done, and name the folder."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"a past model can't be written: {error.strerror}", str(folder)) from error


def allow(files: int) -> None:
    """Let this process have so many files for vectors open. Raises `OSError` if the system does not let it."""
    posix.allow_open_files(files + USUAL, "a window on the disk needs")


def let_go() -> None:
    """Close all files in a forked process, which needs none of them: else they would stay as long as it lives."""
    for file in list(_open):
        file._close()


def _without_thread() -> None:
    """Wait for nothing in a forked process: the thread that brings files to the disk is in the first one."""
    for file in list(_open):
        file._settled = None


posix.after_fork_in_child(_without_thread)


def rested() -> None:
    """Wait for that thread: a process that is forked now inherits no file that it has open."""
    host.process.background().submit(lambda: None).result()


def _header(d: int, dtype: torch.dtype) -> bytes:
    """The bytes that safetensors writes before a single tensor `w` `[d]`."""
    size = d * dtype.itemsize
    bits = 8 * dtype.itemsize
    type_name = f"BF{bits}" if dtype == torch.bfloat16 else f"F{bits}"
    description = {"w": {"dtype": type_name, "shape": [d], "data_offsets": [0, size]}}
    text = json.dumps(description, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that numbers begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text
