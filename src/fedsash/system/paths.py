"""Paths: plain files, names in a folder, the user's cache folder, and files that are written as a whole."""

from __future__ import annotations

import difflib
import glob
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..settings.errors import RunError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def plain_file(path: Path | str) -> Path:
    """The path, if a plain file, or a link to one, is there.

    To open anything else may wait for ever. Raises `OSError`, which names the path and what is there instead.
    """
    path = Path(path)
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise OSError(f"{path} is {KINDS.get(kind, 'something else')}, and must be a file")
    return path


def similar(path: Path | str) -> str:
    """The end of a sentence about a path that does not exist: a similar name beside it, or nothing."""
    path = Path(path).expanduser()
    missing = next((place for place in reversed((path, *path.parents)) if not place.exists()), path)
    try:
        names = {name.lower(): name for name in sorted(os.listdir(missing.parent), reverse=True)}
    except OSError:
        return ""
    close = difflib.get_close_matches(missing.name.lower(), names, n=1)
    return f"; did you mean {missing.parent / names[close[0]]}?" if close else ""


def check_folder(path: Path | str) -> None:
    """Raise `OSError` if there can't be a folder with files of ours at `path`. Nothing is made."""
    path = Path(path).absolute()
    there = next(place for place in (path, *path.parents) if place.exists() or place.is_symlink())
    if not there.is_dir():
        found = "a file" if there.exists() else "a link to nothing"
        raise NotADirectoryError(f"{there} is {found}, and must be a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} can't be written")


def check_file(path: Path | str) -> None:
    """Raise `OSError` if there can't be a file of ours at `path`. Nothing is made."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, and must be a file, such as {path / 'NAME'}")
    check_folder(path.parent)


def inside(folder: Path, name: str) -> Path:
    """The path of a file of `folder`, by its name in another file, which somebody else may have written.

    Raises `RunError` if the name leads out of the folder. A link in the folder may lead anywhere: whoever owns the
    folder has put it there.
    """
    path = Path(name)
    if path.anchor or ".." in path.parts or "\0" in name:
        raise RunError(f"{folder} names the file {name!r}, which is not in this folder")
    return folder / path


def cache_folder() -> Path:
    """The user's cache folder: `$FEDSASH_CACHE`, else `fedsash` in `$XDG_CACHE_HOME`, else `~/.cache/fedsash`."""
    if "FEDSASH_CACHE" in os.environ:
        return Path(os.environ["FEDSASH_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedsash"


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to be written in the `with` block, which then takes the place of `path`: nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = beside(path)
    clear_beside(path)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: a new or replaced file is durable only then.

    Windows syncs no folder.
    """
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def beside(path: Path) -> Path:
    """The file in which this process writes what then takes the place of `path`; another process has another one."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def clear_beside(path: Path) -> None:
    """Remove what killed processes have left of `path`; on Windows, where nobody knows who lives, nothing."""
    for file in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        number = file.name.split(".")[-2]
        if os.name == "posix" and number.isdecimal() and not _lives(int(number)):
            file.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True


@contextmanager
def naming(path: Path | str, instead_of: Path | None = None) -> Iterator[None]:
    """Make an `OSError` from the `with` block name the file, such as "No space left on device".

    One that names a file already keeps it, unless it is `instead_of`.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(instead_of)):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error
