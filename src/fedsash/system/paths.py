"""Paths: plain files, names in a folder, the user's cache folder, and files that are written as a whole."""

from __future__ import annotations

import difflib
import glob
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..settings.errors import RunError
from .host import host, make_folders, remove_tree_if_possible, unlink_if_there

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


def is_utf8(text: str) -> bool:
    """Whether a text can be written: of a path, Python keeps bytes that are no UTF-8 as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def similar(path: Path | str) -> str:
    """The end of a sentence about a path that does not exist: a similar name beside it, or nothing."""
    path = Path(path).expanduser()
    missing = path
    while not missing.parent.exists() and missing != missing.parent:
        missing = missing.parent
    try:
        names_beside = sorted(os.listdir(missing.parent), reverse=True)
    except OSError:
        return ""
    # Of names that differ in case only, the first in the alphabet stays: it is the last that is entered.
    names = {name.lower(): name for name in names_beside}
    close = difflib.get_close_matches(missing.name.lower(), names, n=1)
    if not close:
        return ""
    return f"; did you mean {missing.parent / names[close[0]]}?"


def check_folder(path: Path | str) -> None:
    """Raise `OSError` if there can't be a folder with files of ours at `path`. Nothing is made."""
    nearest = Path(path).absolute()
    while not nearest.exists() and not nearest.is_symlink() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        kind = "a file" if nearest.exists() else "a link to nothing"
        raise NotADirectoryError(f"{nearest} is {kind}, and must be a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{nearest} can't be written")


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
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "fedsash"


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to be written in the `with` block, which then takes the place of `path`: nobody ever reads half of it."""
    make_folders(path.parent)
    unfinished = beside(path)
    clear_beside(path)
    try:
        yield unfinished
        host.disk.rename(unfinished, path)
    finally:
        unlink_if_there(unfinished)


def beside(path: Path) -> Path:
    """The file in which this process writes what then takes the place of `path`; another process has another one."""
    return path.with_name(f".{path.name}.{host.process.number}.tmp")


def clear_beside(path: Path) -> None:
    """Remove what killed processes have left of `path`, a file or a folder."""
    for file in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if is_left_over(file):
            if file.is_dir() and not file.is_symlink():
                remove_tree_if_possible(file)
            else:
                unlink_if_there(file)


def is_left_over(file: Path) -> bool:
    """Whether a file has a name that `beside` gives in a process that has ended.

    On Windows, where nobody knows who lives, none is.
    """
    name = re.fullmatch(r"\..+\.(\d+)\.tmp", file.name)
    return os.name == "posix" and name is not None and not host.process.lives(int(name[1]))


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
