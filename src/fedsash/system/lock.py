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
_here: dict[tuple[int, int], int] = {}
"""The lock files that this process holds, by device and number, and as which open file."""
_changing = threading.Lock()


class InUseError(RunError):
    """Another process, or another session of this one, works in the folder."""


@contextmanager
def held(folder: Path, wait: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold a folder. A missing folder is made. If it is still empty at the end, it is removed again.

    The lock is that of `filelock` on `folder/lock`. The operating system releases it when its process ends in any way,
    and worker processes do not keep it. The file says who holds the lock.

    Raises `InUseError`, which says who holds the folder. With `wait`, calls it once with this line instead, and waits.
    Where the system or the file system has no locks, a line in the log says so; then only this process is kept out.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    file = _take(folder) if wait is None else when_free(partial(_take, folder), wait)
    try:
        yield
    finally:
        with _changing:
            _give_back(file, folder)
        for place in missing:
            with suppress(OSError):  # it is not empty
                place.rmdir()


def check_free(folder: Path) -> None:
    """Raise `InUseError` if somebody holds the folder. Nothing is made or changed.

    This answers before data are loaded. It does not hold the folder.
    """
    with _changing, suppress(FileNotFoundError):
        _check_not_here(folder)
        file = os.open(folder / NAME, os.O_RDWR | NO_LINK)
        try:
            _lock(file, folder)
        finally:
            os.close(file)


def when_free(act: Callable[[], T], wait: Callable[[str], object]) -> T:
    """What `act` returns, as soon as it raises no `InUseError`. Its first one is told to `wait`, as a line."""
    told = False
    while True:
        try:
            return act()
        except InUseError as error:
            if not told:
                wait(str(error))
            told = True
            time.sleep(POLL)


def _take(folder: Path) -> int:
    """Lock the folder and return the open file."""
    with _changing:
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                with suppress(FileNotFoundError):  # others have removed it since, or have made it again
                    if not stat.S_ISDIR(os.lstat(folder).st_mode):
                        raise
            _check_not_here(folder)
            with suppress(FileNotFoundError):  # another process has removed the empty folder: make it again
                file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
                try:
                    _lock(file, folder)
                    if _is_there(file, folder):  # else another process has removed the file before it was locked
                        _sign(file)
                        _here[_number(os.fstat(file))] = file
                        return file
                except BaseException:
                    os.close(file)
                    raise
                os.close(file)


def _give_back(file: int, folder: Path) -> None:
    """Remove the file while it is locked, so that nobody loses a lock of his own, and release it."""
    if _is_there(file, folder):
        with suppress(PermissionError):  # Windows removes no open file
            (folder / NAME).unlink()
    _here.pop(_number(os.fstat(file)), None)
    os.close(file)


def _check_not_here(folder: Path) -> None:
    """Raise `InUseError` if this process holds the folder."""
    with suppress(FileNotFoundError):
        if _number(os.lstat(folder / NAME)) in _here:
            raise InUseError(f"{folder} is in use by another session of this process")


def _lock(file: int, folder: Path) -> None:
    try:
        free = lock_descriptor(file, blocking=False)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise OSError(error.errno, error.strerror, str(folder / NAME)) from error
        log.warning("%s can't be locked here: let only one process work in it", folder)
        return
    if not free:
        raise InUseError(f"{folder} is in use by {_holder(file)}")


def _is_there(file: int, folder: Path) -> bool:
    """Whether the open file is the one in the folder."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(folder / NAME))
    except FileNotFoundError:
        return False


def _number(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _sign(file: int) -> None:
    """Write into the locked file who holds it. A full disk is no reason to stop: the line only informs others."""
    command = SECRET.sub(r"\1...", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"process {os.getpid()} of {_user()} on {socket.gethostname()} since {since}: {command}"
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.write(file, line.encode())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # the system knows no name for the user's number
        return str(os.getuid()) if hasattr(os, "getuid") else "somebody"


def _holder(file: int) -> str:
    """What the holder has written, or less if it has not written it yet."""
    line = b""
    with suppress(OSError):  # on Windows nobody else reads what is locked
        os.lseek(file, 0, os.SEEK_SET)
        line = os.read(file, LONGEST)
    return " ".join(line.decode(errors="replace").split()) or "another process"


def _leave_to_the_parent() -> None:
    """Close the lock files in a forked process: they are locked as long as any process has them open."""
    for file in _here.values():
        os.close(file)
    _here.clear()


posix.after_fork_in_child(_leave_to_the_parent)
