"""Locks of folders: one session at a time works in a run's folder, and a lock ends with its process."""

from __future__ import annotations

import errno
import getpass
import logging
import os
import re
import shlex
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from filelock import lock_descriptor

from ..settings.errors import RunError
from . import posix
from .host import host, make_folders, write_all

T = TypeVar("T")

NAME = "lock"
POLL = 0.2
"""The seconds between two attempts to get a lock."""
LONGEST = 400
"""The number of bytes that are shown of the line in a lock's file."""
SECRET = re.compile(r"(--[\w-]*(?:token|secret|password)[\w-]*[ =])\S+")
"""An option whose value others must not read: Flower gives its processes a token."""
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of a system, or of a file system, that has no locks."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Do not open what a link points to. Windows does not have this."""

log = logging.getLogger("fedsash")
_handles: dict[tuple[int, int], int] = {}
"""The handles of the lock files that this process holds, by device and inode."""
_changing = threading.Lock()


class InUseError(RunError):
    """Another process, or another session of this one, works in the folder."""


@contextmanager
def locked(folder: Path, wait: Callable[[str], object] | None = None) -> Iterator[None]:
    """Lock a folder. A missing folder is made. If it is still empty at the end, it is removed again.

    The lock is that of `filelock` on `folder/lock`. The operating system releases it when its process ends in any way,
    and worker processes do not keep it. The file says who holds the lock.

    Raises `InUseError`, which says who holds the folder. With `wait`, calls it once with this line instead, and waits.
    Where the system or the file system has no locks, a line in the log says so; then only this process is kept out.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    acquire = partial(_acquire, folder)
    handle = acquire() if wait is None else when_free(acquire, wait)
    try:
        yield
    finally:
        with _changing:
            _release(handle, folder)
        for path in missing:
            with suppress(OSError):  # it is not empty
                host.disk.remove_folder(path)


def check_free(folder: Path) -> None:
    """Raise `InUseError` if somebody holds the folder. Nothing is made or changed.

    This answers before data are loaded. It does not hold the folder.
    """
    with _changing, suppress(FileNotFoundError):
        _check_not_held_here(folder)
        handle = host.disk.open(folder / NAME, os.O_RDWR | NO_LINK)
        try:
            _lock(handle, folder)
        finally:
            os.close(handle)


def when_free(act: Callable[[], T], wait: Callable[[str], object]) -> T:
    """What `act` returns, as soon as it raises no `InUseError`. `wait` is called once, with the line of the first."""
    has_waited = False
    while True:
        try:
            return act()
        except InUseError as error:
            if not has_waited:
                wait(str(error))
            has_waited = True
            host.clock.sleep(POLL)


def _acquire(folder: Path) -> int:
    """Lock the folder and return the handle of its lock file."""
    with _changing:
        while True:
            _make(folder)
            _check_not_held_here(folder)
            with suppress(FileNotFoundError):  # another process has removed the empty folder: make it again
                handle = host.disk.open(folder / NAME, os.O_RDWR | os.O_CREAT | NO_LINK)
                try:
                    _lock(handle, folder)
                    if _is_in_folder(handle, folder):  # else another process has removed it before it was locked
                        _write_holder(handle)
                        _handles[_inode(os.fstat(handle))] = handle
                        return handle
                except BaseException:
                    os.close(handle)
                    raise
                os.close(handle)


def _make(folder: Path) -> None:
    """Make a folder that is missing. Raises `FileExistsError` if something else is there."""
    try:
        make_folders(folder)
    except FileExistsError:
        with suppress(FileNotFoundError):  # others have removed it since, or have made it again
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise


def _release(handle: int, folder: Path) -> None:
    """Remove the file while it is locked, so that nobody loses a lock of his own, and release it."""
    if _is_in_folder(handle, folder):
        with suppress(PermissionError):  # Windows removes no open file
            host.disk.unlink(folder / NAME)
    _handles.pop(_inode(os.fstat(handle)), None)
    os.close(handle)


def _check_not_held_here(folder: Path) -> None:
    """Raise `InUseError` if this process holds the folder."""
    with suppress(FileNotFoundError):
        if _inode(os.lstat(folder / NAME)) in _handles:
            raise InUseError(f"{folder} is in use by another session of this process")


def _lock(handle: int, folder: Path) -> None:
    """Lock an open lock file. Raises `InUseError` if another process has locked it."""
    try:
        is_locked = lock_descriptor(handle, blocking=False)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise OSError(error.errno, error.strerror, str(folder / NAME)) from error
        log.warning("%s can't be locked here: let only one process work in it", folder)
        return
    if not is_locked:
        raise InUseError(f"{folder} is in use by {_holder(handle)}")


def _is_in_folder(handle: int, folder: Path) -> bool:
    """Whether the open file is still the one in the folder."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(folder / NAME))
    except FileNotFoundError:
        return False


def _inode(file: os.stat_result) -> tuple[int, int]:
    """What identifies a file on this machine: its device and its inode."""
    return file.st_dev, file.st_ino


def _write_holder(handle: int) -> None:
    """Write into the locked file who holds it. A full disk is no reason to stop: the line only informs others.

    The paths in a command may have bytes that are no text.
    """
    command = SECRET.sub(r"\1...", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"process {host.process.number} of {_user()} on {socket.gethostname()} since {since}: {command}"
    with suppress(OSError):
        host.disk.truncate(handle, 0)
        write_all(handle, line.encode(errors="backslashreplace"))


def _user() -> str:
    """The user's name; where the system knows none, the user's number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "somebody"


def _holder(handle: int) -> str:
    """What the holder has written, or less if it has not written it yet."""
    line = b""
    with suppress(OSError):  # on Windows nobody else reads what is locked
        os.lseek(handle, 0, os.SEEK_SET)
        line = os.read(handle, LONGEST)
    words = line.decode(errors="replace").split()
    return " ".join(words) or "another process"


def _close_in_child() -> None:
    """Close the lock files in a forked process: they are locked as long as any process has them open."""
    for handle in _handles.values():
        os.close(handle)
    _handles.clear()


posix.after_fork_in_child(_close_in_child)
