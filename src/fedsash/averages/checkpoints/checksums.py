"""The checksums of checkpoints, whose files are read along with their mean, so that a disk gives each byte once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from ...system.paths import naming

BLOCK = 1 << 20
"""How many bytes are read at a time."""


class Checksums:
    """The SHA-256 of the files of some checkpoints, which are lists of files.

    Threads of their own read all checkpoints side by side, a little ahead of the mean: that finds its numbers in
    memory then. More of the files than lies between the two need not fit there.
    """

    def __init__(self, checkpoints: Sequence[Sequence[Path]]) -> None:
        self._readers = [_Reader(files) for files in checkpoints]
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))
        self._running: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def advance(self, share: float) -> None:
        """Have the threads read up to a share of each checkpoint, after they are done with the last one."""
        self._wait()
        self._running = [self._pool.submit(reader.advance, share) for reader in self._readers]

    def finish(self) -> list[dict[str, str]]:
        """For each checkpoint, the checksum of each of its files, by its name."""
        self.advance(1.0)
        self._wait()
        return [reader.sums for reader in self._readers]

    def _wait(self) -> None:
        for future in self._running:
            future.result()


class _Reader:
    """Reads the files of a checkpoint one after the other, and leaves their checksums in `sums`."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.sums: dict[str, str] = {}
        self._size = sum(file.stat().st_size for file in files)
        self._blocks = self._read(files)

    def advance(self, share: float) -> None:
        """Read up to a share of all bytes; if that is 1 or more, to the end."""
        for done in self._blocks:
            if share < 1 and done >= share * self._size:
                break

    def _read(self, files: Sequence[Path]) -> Iterator[int]:
        """Read block by block; gives the number of bytes that were read so far."""
        buffer = memoryview(bytearray(BLOCK))
        done = 0
        for path in files:
            sha256 = hashlib.sha256()
            with naming(path), path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    sha256.update(buffer[:count])
                    done += count
                    yield done
            self.sums[path.name] = sha256.hexdigest()
