"""The machine on which fedsash runs, as far as it waits for it or leaves something on its disk.

Rounds over nodes, saved states and all files of a run use the `host`: its clock, its disk, its process and the thread
that brings files to the disk. A simulated machine puts parts of its own in their place, and the code stays as it is.
Files are read without it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

AS_BYTES = getattr(os, "O_BINARY", 0)
"""Write bytes as they are. Only Windows knows another way."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
"""Open a file that must not exist yet."""
ATTEMPTS = 100
"""How often a folder is tried again whose parent was missing: other processes remove empty folders, too."""


class Clock:
    """A clock that never goes back, in seconds, and the wait by it."""

    def now(self) -> float:
        """The seconds since some moment in the past."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        time.sleep(seconds)


class Disk:
    """The operations that change files and folders. Each raises `OSError` as the function of `os` does."""

    def open(self, path: Path, flags: int, permissions: int = 0o666) -> int:
        """A handle of the file at a path, as `os.open` gives it."""
        return os.open(path, flags | AS_BYTES, permissions)

    def write(self, handle: int, data: memoryview) -> int:
        """Write data at the end of what is written so far; returns how many bytes were written, maybe not all."""
        return os.write(handle, data)

    def truncate(self, handle: int, length: int) -> None:
        """Cut an open file to this length."""
        os.ftruncate(handle, length)

    def reserve(self, handle: int, length: int) -> None:
        """Take the space of so many bytes of an open file on the disk, where the system can do so."""
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(handle, 0, length)

    def sync(self, handle: int) -> None:
        """Wait until the content of an open file is on the disk, or of an open folder the names in it."""
        os.fsync(handle)

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name."""
        os.link(source, target)

    def link_open(self, handle: int, target: Path) -> None:
        """Give an open file, which may have none, a name."""
        # With `src_dir_fd` the link is to the file itself, and not to the symbolic link in /proc.
        os.link(f"/proc/self/fd/{handle}", target, src_dir_fd=handle)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or a folder another name. A file, or an empty folder, that has it is replaced."""
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder, whose parent exists."""
        os.mkdir(path)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with all that is in it."""
        shutil.rmtree(path)

    def save_tensors(self, tensors: Mapping[str, Any], path: Path) -> None:
        """Write tensors as safetensors. Raises `SafetensorError` instead of `OSError`."""
        from safetensors.torch import save_file

        save_file(dict(tensors), path)


class Process:
    """This process, and others of the machine."""

    @property
    def number(self) -> int:
        """The number by which the system knows this process."""
        return os.getpid()

    def lives(self, number: int) -> bool:
        """Whether the process of this number has not ended. Signal 0 is not sent: the system only checks the number."""
        try:
            os.kill(number, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:  # it is somebody else's
            return True
        return True

    def background(self) -> Executor:
        """The thread that brings files to the disk in this process; a forked process has not inherited it."""
        return _thread(os.getpid())


@lru_cache(maxsize=1)
def _thread(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "fedsash-disk")


@dataclass
class Host:
    """The parts of a machine that are used at this moment."""

    clock: Clock = field(default_factory=Clock)
    disk: Disk = field(default_factory=Disk)
    process: Process = field(default_factory=Process)


host = Host()
"""The machine: the real one, unless a simulation has put its parts in place."""


@contextmanager
def opened(path: Path, flags: int, permissions: int = 0o666) -> Iterator[int]:
    """A handle of the file at a path, which is closed at the end of the `with` block."""
    handle = host.disk.open(path, flags, permissions)
    try:
        yield handle
    finally:
        os.close(handle)


def write_all(handle: int, *content: bytes | memoryview) -> None:
    """Write the parts of a content after each other; one `write` may take less than it is given."""
    for part in content:
        unwritten = memoryview(part).cast("B")
        while unwritten:
            count = host.disk.write(handle, unwritten)
            unwritten = unwritten[count:]


def nameless(folder: Path) -> int:
    """A handle of a new file in `folder` that has no name. It is gone when no process has it open any more.

    The folder is made if it is not there. `Disk.link_open` can name the file, if the system and the file system have
    that.
    """
    make_folders(folder)
    try:
        return host.disk.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):
        path = folder / f".{secrets.token_hex(8)}.tmp"
        handle = host.disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        host.disk.unlink(path)
        return handle


def unlink_if_there(path: Path) -> None:
    """Remove a file, if there is one."""
    try:
        host.disk.unlink(path)
    except FileNotFoundError:
        return


def remove_tree_if_possible(path: Path) -> None:
    """Remove a folder with all that is in it, as far as the system lets us."""
    try:
        host.disk.remove_tree(path)
    except OSError:
        return


def make_folders(path: Path) -> None:
    """Make a folder and those above it, if they are not there, and wait until their names are on the disk.

    Raises `FileExistsError` if something else than a folder is there, and `FileNotFoundError` where the system makes no
    folder, such as in /proc.
    """
    for attempt in range(ATTEMPTS):
        try:
            host.disk.make_folder(path)
        except FileNotFoundError:
            if path.parent == path or attempt == ATTEMPTS - 1:
                raise
            make_folders(path.parent)
        except OSError:
            if path.is_dir():
                return
            raise
        else:
            with suppress(PermissionError):  # a folder may let us write in it, and not read it
                sync_folder(path.parent)
            return


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: a new or replaced file is durable only then.

    Windows syncs no folder. Raises `OSError`, which names the folder.
    """
    if os.name == "nt":
        return
    with opened(folder, os.O_RDONLY) as handle:
        try:
            host.disk.sync(handle)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error


def sync_folders(folder: Path) -> None:
    """Wait until the names of a folder, and of those above it, are on the disk, as far as the system lets us.

    A process that was killed may have made a folder, and not have waited for it. Those far above are not ours: they may
    not be readable, or lie on a file system that syncs nothing.
    """
    for above in folder.absolute().parents:
        with suppress(OSError):
            sync_folder(above)
