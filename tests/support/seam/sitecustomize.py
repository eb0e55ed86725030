"""What Python runs first, with this folder on PYTHONPATH: `host.disk` then writes down each operation it is asked for.

The environment's FEDSASH_SEAM names the file. A line has the thread, the operation and its paths, as `Call` has them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsash.system.host import Disk, host

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
"""With one of these flags a file is opened to change it, or a name."""


class RecordingDisk(Disk):
    """The real disk, with a line in the log before each operation, whether it then succeeds or not.

    A folder that is removed with all that is in it has a line for each file and folder. A file of safetensors is
    written under a name that only the library knows, and then renamed; what it writes in between has no lines.
    """

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def open(self, path: Path, flags: int, permissions: int = 0o666) -> int:
        if flags & WRITES:
            self._record("open", path)
        return super().open(path, flags, permissions)

    def write(self, handle: int, data: memoryview) -> int:
        self._record("write", _path_of(handle))
        return super().write(handle, data)

    def truncate(self, handle: int, length: int) -> None:
        self._record("truncate", _path_of(handle))
        super().truncate(handle, length)

    def reserve(self, handle: int, length: int) -> None:
        self._record("reserve", _path_of(handle))
        super().reserve(handle, length)

    def sync(self, handle: int) -> None:
        self._record("sync", _path_of(handle))
        super().sync(handle)

    def link(self, source: Path, target: Path) -> None:
        self._record("link", source, target)
        super().link(source, target)

    def link_open(self, handle: int, target: Path) -> None:
        self._record("link", f"/proc/self/fd/{handle}", target)
        super().link_open(handle, target)

    def rename(self, source: Path, target: Path) -> None:
        self._record("rename", source, target)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._record("unlink", path)
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self._record("make folder", path)
        super().make_folder(path)

    def remove_folder(self, path: Path) -> None:
        self._record("remove folder", path)
        super().remove_folder(path)

    def remove_tree(self, path: Path) -> None:
        for folder, _, files in os.walk(path, topdown=False):
            for file in files:
                self._record("unlink", f"{folder}/{file}")
            self._record("remove folder", folder)
        super().remove_tree(path)

    def save_tensors(self, tensors: Mapping[str, Any], path: Path) -> None:
        unfinished = path.with_name(".tmp*")
        self._record("open", unfinished)
        self._record("rename", unfinished, path)
        super().save_tensors(tensors, path)

    def _record(self, operation: str, *paths: Path | str) -> None:
        names = [os.path.abspath(path) for path in paths]
        line = json.dumps([threading.get_native_id(), operation, names])
        os.write(self._log, f"{line}\n".encode())


def _path_of(handle: int) -> str:
    """The path of an open file, as the system knows it."""
    return os.readlink(f"/proc/self/fd/{handle}").removesuffix(" (deleted)")


if "FEDSASH_SEAM" in os.environ:
    host.disk = RecordingDisk(os.environ["FEDSASH_SEAM"])
