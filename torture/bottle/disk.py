"""A disk that keeps what was synced, and of the rest what chance leaves.

Its files also lie in a real folder, in memory, where they are read. What a power cut would leave is known from here: a
file has its content, and the content when it was last synced; a folder has its names, the names when it was last
synced, and each change since then.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

from fedsash.system.host import Disk

from .world import Killed


@dataclass(eq=False)
class File:
    """A file: its content, and the content that is on the disk for certain; None before it was ever synced."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes | None = None


class Change(NamedTuple):
    """A change of a folder's names that is not synced: a name that goes, and one that comes, each maybe none."""

    gone: str
    come: str
    entry: Entry | None


@dataclass(eq=False)
class Folder:
    """A folder: its names, those that are on the disk for certain, and the changes in between."""

    names: dict[str, Entry] = field(default_factory=dict)
    synced: dict[str, Entry] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, gone: str = "", come: str = "", entry: Entry | None = None) -> None:
        """Change the names."""
        change = Change(gone, come, entry)
        _apply(self.names, change)
        self.changes.append(change)

    def sync(self) -> None:
        """Bring the names to the disk."""
        self.synced = dict(self.names)
        self.changes.clear()


Entry: TypeAlias = File | Folder
Content: TypeAlias = dict[str, "bytes | Content"]
"""What is in a folder, by name."""


def _apply(names: dict[str, Entry], change: Change) -> None:
    if change.gone:
        names.pop(change.gone, None)
    if change.come:
        assert change.entry is not None
        names[change.come] = change.entry


class SimulatedDisk(Disk):
    """The disk of a machine in the bottle, whose files lie in `root`.

    `step` is called before each operation, and may raise. Of a write in which the process dies,
    the first half reaches the file. `room` is how many more bytes fit; None: any number.
    """

    def __init__(self, root: Path, step: Callable[[], None]) -> None:
        self.root = root
        self.room: int | None = None
        self._step = step
        self._top = Folder()
        self._handles: dict[int, Entry] = {}
        root.mkdir(parents=True, exist_ok=True)

    def open(self, path: Path, flags: int, permissions: int = 0o666) -> int:
        self._step()
        handle = os.open(path, flags, permissions)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            self._handles[handle] = File()
            return handle
        if path == self.root:
            self._handles[handle] = self._top
            return handle
        if not path.is_relative_to(self.root):  # a folder above it, which is there for certain
            self._handles[handle] = Folder()
            return handle
        folder, name = self._place(path)
        if name not in folder.names:
            folder.change(come=name, entry=File())
        entry = folder.names[name]
        if isinstance(entry, File) and flags & os.O_TRUNC:
            entry.content.clear()
        self._handles[handle] = entry
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        try:
            self._step()
        except Killed as killed:
            if killed.here:
                self._write(handle, data[: len(data) // 2])
            raise
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return self._write(handle, data)

    def _write(self, handle: int, data: memoryview) -> int:
        written = os.write(handle, data)
        entry = self._handles[handle]
        assert isinstance(entry, File)
        entry.content += data[:written]
        return written

    def truncate(self, handle: int, length: int) -> None:
        self._step()
        os.ftruncate(handle, length)
        entry = self._handles[handle]
        assert isinstance(entry, File)
        del entry.content[length:]

    def sync(self, handle: int) -> None:
        self._step()
        entry = self._handles[handle]
        if isinstance(entry, File):
            entry.synced = bytes(entry.content)
        else:
            entry.sync()

    def link(self, source: Path, target: Path) -> None:
        self._step()
        os.link(source, target)
        from_folder, from_name = self._place(source)
        folder, name = self._place(target)
        folder.change(come=name, entry=from_folder.names[from_name])

    def link_open(self, handle: int, target: Path) -> None:
        self._step()
        super().link_open(handle, target)
        folder, name = self._place(target)
        folder.change(come=name, entry=self._handles[handle])

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        os.replace(source, target)
        folder, name = self._place(source)
        target_folder, target_name = self._place(target)
        entry = folder.names[name]
        if folder is target_folder:
            folder.change(gone=name, come=target_name, entry=entry)
            return
        target_folder.change(come=target_name, entry=entry)
        folder.change(gone=name)

    def unlink(self, path: Path) -> None:
        self._step()
        os.unlink(path)
        folder, name = self._place(path)
        folder.change(gone=name)

    def make_folder(self, path: Path) -> None:
        self._step()
        os.mkdir(path)
        folder, name = self._place(path)
        folder.change(come=name, entry=Folder())

    def remove_folder(self, path: Path) -> None:
        self._step()
        os.rmdir(path)
        folder, name = self._place(path)
        folder.change(gone=name)

    def remove_tree(self, path: Path) -> None:
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                self.remove_tree(inner)
            else:
                self.unlink(inner)
        self.remove_folder(path)

    def save_tensors(self, tensors: Mapping[str, Any], path: Path) -> None:
        from safetensors.torch import save

        handle = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            unwritten = memoryview(save(dict(tensors)))
            while unwritten:
                written = self.write(handle, unwritten)
                unwritten = unwritten[written:]
        finally:
            os.close(handle)

    def content(self) -> Content:
        """What is on the disk as long as the power is on."""
        return _content(self._top)

    def put(self, content: Content) -> None:
        """Let this be on the disk, all of it synced."""
        self._top = _folder(content)
        self._write_out()

    def cut_power(self, chance: Random) -> None:
        """Lose the power: what was not synced may be lost, in part, in any order."""
        self._top = _survivor(self._top, chance, {})
        self._write_out()

    def _write_out(self) -> None:
        """Let the real folder have what is on the disk."""
        self._handles.clear()
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        _write_out(self._top, self.root, {})

    def _place(self, path: Path) -> tuple[Folder, str]:
        """The folder of a path, and the name in it."""
        *parents, name = path.relative_to(self.root).parts
        folder = self._top
        for parent in parents:
            inner = folder.names[parent]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, name


def _content(folder: Folder) -> Content:
    content: Content = {}
    for name, entry in folder.names.items():
        if isinstance(entry, File):
            content[name] = bytes(entry.content)
        else:
            content[name] = _content(entry)
    return content


def changed_files(before: Content, after: Content, without: Collection[str]) -> list[str]:
    """The names of the files, `without` some, that are not the same in two contents of a folder."""
    names = []
    for name in sorted((before.keys() | after.keys()) - set(without)):
        one = before.get(name)
        other = after.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            names += [f"{name}/{inner}" for inner in changed_files(one, other, without)]
        elif one != other:
            names.append(name)
    return names


def _folder(content: Content) -> Folder:
    """A folder with a content, all of it synced."""
    folder = Folder()
    for name, inner in content.items():
        if isinstance(inner, bytes):
            folder.names[name] = File(bytearray(inner), inner)
        else:
            folder.names[name] = _folder(inner)
    folder.sync()
    return folder


def _survivor(folder: Folder, chance: Random, files: dict[int, File]) -> Folder:
    """What a power cut leaves of a folder; `files` are those that have been decided, by the file as it was."""
    names = dict(folder.synced)
    for change in _kept(folder.changes, chance):
        _apply(names, change)
    survivor = Folder()
    for name, entry in names.items():
        if isinstance(entry, Folder):
            survivor.names[name] = _survivor(entry, chance, files)
            continue
        if id(entry) not in files:
            content = _surviving_content(entry, chance)
            files[id(entry)] = File(bytearray(content), content)
        survivor.names[name] = files[id(entry)]
    survivor.sync()
    return survivor


def _kept(changes: list[Change], chance: Random) -> list[Change]:
    """The changes that have reached the disk: none, all, the first ones, or any of them."""
    how = chance.randrange(4)
    if how == 0:
        return []
    if how == 1:
        return changes
    if how == 2:
        return changes[: chance.randint(0, len(changes))]
    return [change for change in changes if chance.random() < 0.5]


def _surviving_content(file: File, chance: Random) -> bytes:
    """What a power cut leaves of a file: what was synced, all, or what was synced and a part of the rest."""
    whole = bytes(file.content)
    synced = file.synced or b""
    if whole == file.synced:
        return whole
    how = chance.randrange(4)
    if how == 0:
        return synced
    if how == 1:
        return whole
    begin = 0
    if whole.startswith(synced):
        begin = len(synced)
    torn = whole[: chance.randint(begin, len(whole))]
    if how == 2:
        return torn
    return torn + bytes(len(whole) - len(torn))  # the length has reached the disk, and the content has not


def _write_out(folder: Folder, place: Path, written: dict[int, Path]) -> None:
    for name, entry in folder.names.items():
        path = place / name
        if isinstance(entry, Folder):
            path.mkdir()
            _write_out(entry, path, written)
        elif id(entry) in written:
            os.link(written[id(entry)], path)
        else:
            path.write_bytes(entry.content)
            written[id(entry)] = path
