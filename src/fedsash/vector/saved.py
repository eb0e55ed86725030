"""Saved rounds: a folder each, complete or absent, checked when read. Parts that did not change share their files."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch

from ..settings.errors import RunError
from ..system import posix
from ..system.checksum import json_checksum
from ..system.host import (
    NEW,
    host,
    make_folders,
    opened,
    remove_tree_if_possible,
    sync_folder,
    sync_folders,
    write_all,
)
from ..system.machine import own_version
from ..system.paths import inside
from .arrays import Vectors
from .vector_files import VectorFile

TENSORS = "state.safetensors"
MANIFEST = "state.json"

STATE = re.compile(r"\d{8,}")
UNFINISHED = re.compile(r"\.\d{8,}(\.old)?\.tmp")
"""The names of states, and of those that a killed process was writing or removing."""
REPLACED = re.compile(r"\.(\d{8,})\.replaced\.tmp")
"""The names of states that were moved aside for new ones of the same rounds."""

_syncing: dict[Path, Future[None]] = {}
"""What brings the newest state of a folder to the disk."""
posix.after_fork_in_child(_syncing.clear)  # the thread is in the first process

T = TypeVar("T")

Part: TypeAlias = Vectors | VectorFile | Callable[[], Vectors]
"""A part of a state: its tensors, or the file that they are in, or what gives them when they are written."""


class StateError(RunError):
    """A saved state that can't be used here."""


class UnreadableError(StateError):
    """A saved state whose files are damaged or in another format."""


class OtherFormatError(UnreadableError):
    """A saved state in another format: the `fact`, and as its `cure` what to do."""

    def __init__(self, fact: str, cure: str) -> None:
        super().__init__(f"{fact}: {cure}")
        self.fact = fact
        self.cure = cure


def save(
    folder: Path,
    round: int,
    whole: Vectors,
    parts: Mapping[str, Part],
    facts: Mapping[str, Any],
    keep: tuple[int, ...] = (),
) -> Path:
    """Save a state as `folder/<round>`. Keep this state, the one before it, and those of the rounds in `keep`.

    `whole` are the tensors of the state. Each of the `parts` has a file of its own, by its name. If the newest state in
    `folder` has a part of that name, its file is linked instead of written again. So that newest state must be an
    earlier one of the same training (see `cut`). A part that is a file already is linked from the beginning. `facts` is
    whatever else the state has, for JSON; its `format` is compared when it is read.

    If the process is killed, the new state is complete or absent. If the machine crashes, the state may be damaged;
    `read` detects this by the checksums in `state.json`. The one before it is on the disk then: a state is brought
    there in the background, and the next `save` waits for that before it removes older ones. The first state of a
    folder, and one that replaces another of the same round, is on the disk before it counts. Raises `OSError`, for
    example if the disk is full, and leaves everything as it was.
    """
    syncing = _syncing.pop(folder, None)
    if syncing is not None:
        syncing.result()
    _clear(folder)
    state_before = place(folder, max(saved_rounds(folder), default=0))
    final = place(folder, round)
    writing = folder / f".{final.name}.tmp"
    is_saved_again = final.exists()
    if is_saved_again and not _is_state(final):
        raise FileExistsError(f"{final} is not a state: move it elsewhere, or take another folder")
    try:
        make_folders(folder)
        host.disk.make_folder(writing)
        _write(writing, state_before, whole, parts, facts)
        if is_saved_again:
            _to_disk(writing)
            _replace(final, writing)
        elif state_before.exists():
            sync_folder(writing)  # whatever a crash leaves of its files, their names say that it is a state
            host.disk.rename(writing, final)
        else:  # there is nothing to go back to: it is on the disk before it has its name, and then with it
            _to_disk(writing)
            sync_folders(folder)
            host.disk.rename(writing, final)
            sync_folder(folder)
    except BaseException:
        remove_tree_if_possible(writing)
        raise
    try:
        _prune(folder, keep)
    finally:  # only now, so that also the end of what was removed is on the disk
        _syncing[folder] = host.process.background().submit(_to_disk, final)
    return final


def read(path: Path, format: int) -> tuple[dict[str, Any], Vectors]:
    """The facts of the state saved at `path`, and its tensors without the parts. Every file is checked.

    Raises `UnreadableError` if a file is missing or damaged, or if the state is in another format.
    """
    facts = manifest(path, format)
    for name, checksum in facts["files"].items():
        file = inside(path, name)
        if not file.is_file() or _checksum(file) != checksum:
            raise UnreadableError(f"{file} is missing or damaged")
    return facts, tensors(path / TENSORS)


def newest(folder: Path, load: Callable[[Path], T]) -> tuple[T | None, list[str]]:
    """What `load` makes of the newest readable state, None if none was saved, and lines about those after it.

    A line names each unreadable state; what to do with those of another format is said once. Another one says if other
    versions of the libraries have saved the state. A killed process may have left things in `folder`: they are cleared
    up first, for good, since nobody may look there again after a run's end.

    Raises `StateError` if all saved states are unreadable, and whatever else `load` raises.
    """
    errors: list[str] = []
    cures: set[str] = set()
    if folder.is_dir():
        _clear(folder)
        sync_folder(folder)
    for round in reversed(saved_rounds(folder)):
        path = place(folder, round)
        try:
            loaded = load(path)
            notes = [f"{error}; using the state before it" for error in errors]
            return loaded, notes + _note_of_versions(path)
        except OtherFormatError as error:
            is_said = error.cure in cures
            errors.append(error.fact if is_said else str(error))
            cures.add(error.cure)
        except UnreadableError as error:
            errors.append(str(error))
    if errors:
        raise StateError(f"there is no usable state: {'; '.join(errors)}")
    return None, []


def manifest(path: Path, format: int | None = None) -> dict[str, Any]:
    """The facts of the state saved at `path`. Raises `UnreadableError` if they are damaged or in another format."""
    file = path / MANIFEST
    try:
        facts: dict[str, Any] = json.loads(file.read_text())
        checksum = facts.pop("checksum")
        format_of_state = facts["format"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UnreadableError(f"{file} is missing or damaged") from None
    if checksum != json_checksum(facts):
        raise UnreadableError(f"{file} is damaged")
    if format not in (None, format_of_state):
        saved_by = facts.get("versions", "another fedsash")
        fact = f"{path} is in format {format_of_state}, and this fedsash reads format {format}"
        raise OtherFormatError(fact, f"go on with what saved it ({saved_by}), or begin anew in another folder")
    return facts


def tensors(path: Path) -> Vectors:
    """The tensors of a file. Raises `UnreadableError` if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        vectors: Vectors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UnreadableError(f"{path} is missing or damaged") from error
    return vectors


def cut(folder: Path, round: int) -> None:
    """Go on from the state after `round`: remove later ones, and those that were not written completely.

    It is on the disk then: the process that saved it may have been killed before it had waited for that.
    """
    _clear(folder)
    _to_disk(place(folder, round))
    later_rounds = [later for later in saved_rounds(folder) if later > round]
    for later in later_rounds:
        _remove(place(folder, later))
    if later_rounds:
        sync_folder(folder)


def prune(folder: Path, keep: tuple[int, ...]) -> None:
    """Remove all states before the last two, but those of the rounds in `keep`, for good."""
    if folder.is_dir():
        _prune(folder, keep)
        sync_folder(folder)


def _prune(folder: Path, keep: tuple[int, ...]) -> None:
    """Do what `prune` says. After a power cut what was removed may be back, unless the folder is synced."""
    rounds = saved_rounds(folder)
    complete = [round for round in rounds if (place(folder, round) / MANIFEST).exists()]
    first_of_last_two = min(complete[-2:], default=0)
    for round in rounds:
        if round < first_of_last_two and round not in keep:
            with suppress(OSError):  # one state too many does no harm
                _remove(place(folder, round))


def saved_rounds(folder: Path) -> list[int]:
    """The rounds whose states are saved, ascending. A folder of another kind is none, whatever its name is."""
    rounds = []
    for path in folder.glob("[0-9]*"):
        if STATE.fullmatch(path.name) and _is_state(path):
            rounds.append(int(path.name))
    return sorted(rounds)


def _is_state(path: Path) -> bool:
    """Whether a folder holds a state, which may be damaged: after a crash of the machine it may be empty."""
    if not path.is_dir():
        return False
    if (path / MANIFEST).exists() or (path / TENSORS).exists():
        return True
    return not any(path.iterdir())


def place(folder: Path, round: int) -> Path:
    """The folder of the state after `round`."""
    return folder / f"{round:08d}"


def _remove(path: Path) -> None:
    """Remove a state. It is renamed first: a killed process leaves it whole, or nothing that counts as saved.

    A crash of the machine does, too: the new name is on the disk before the first file goes.
    """
    going = path.with_name(f".{path.name}.old.tmp")
    try:
        host.disk.rename(path, going)
        sync_folder(path.parent)
        host.disk.remove_tree(going)
    except BaseException:  # such as Ctrl-C
        remove_tree_if_possible(going)
        raise


def _replace(state: Path, new: Path) -> None:
    """Put a `new` state of the same round, which is on the disk, in the place of `state`.

    A folder can't be renamed to one that has files. So `state` is moved aside for a moment. A process that is killed in
    this moment leaves it there, and `_clear` moves it back.
    """
    aside = state.with_name(f".{state.name}.replaced.tmp")
    try:
        host.disk.rename(state, aside)
        host.disk.rename(new, state)
        sync_folder(state.parent)
    finally:
        if state.exists():
            remove_tree_if_possible(aside)
        else:  # such as Ctrl-C between the two
            host.disk.rename(aside, state)


def _clear(folder: Path) -> None:
    """Tidy up after a killed process.

    A state that it was replacing goes back to its place, if the new one isn't there. What it has left of states that
    it was writing or removing is removed.
    """
    for path in folder.glob(".*.tmp"):
        if not path.is_dir():
            continue
        replaced = REPLACED.fullmatch(path.name)
        if replaced is not None and not (folder / replaced[1]).exists():
            host.disk.rename(path, folder / replaced[1])
        elif replaced is not None or UNFINISHED.fullmatch(path.name):
            host.disk.remove_tree(path)


def _write(
    writing: Path, state_before: Path, whole: Vectors, parts: Mapping[str, Part], facts: Mapping[str, Any]
) -> None:
    """Write all files of a state. The parts that `state_before` also has become links."""
    try:
        checksums_before: dict[str, int] = manifest(state_before, facts["format"])["files"]
    except StateError:
        checksums_before = {}
    checksums: dict[str, int] = {}
    for file, part in parts.items():
        if file in checksums_before and _link(state_before / file, writing / file):
            checksums[file] = checksums_before[file]
        else:
            checksums[file] = _write_part(part, writing / file)
    checksums[TENSORS] = _write_tensors(whole, writing / TENSORS)
    content: dict[str, Any] = {"versions": versions(), **facts, "files": checksums}
    content["checksum"] = json_checksum(content)
    # The manifest is written last: a folder without one is a state that was not written completely.
    with opened(writing / MANIFEST, NEW) as handle:
        write_all(handle, json.dumps(content, indent=1).encode())


def _to_disk(state: Path) -> None:
    """Bring a state's files, and the names in its folder and of it, to the disk. It may be removed meanwhile."""
    mode = os.O_RDWR if os.name == "nt" else os.O_RDONLY  # Windows syncs no file that is only read
    with suppress(FileNotFoundError):
        for path in state.iterdir():
            with opened(path, mode) as handle:
                host.disk.sync(handle)
        sync_folder(state)
        sync_folder(state.parent)


def _write_part(part: Part, path: Path) -> int:
    """Write a part, or give its file another name; returns its checksum."""
    if isinstance(part, VectorFile):
        return part.save(path)
    if callable(part):
        return _write_tensors(part(), path)
    return _write_tensors(part, path)


def _write_tensors(vectors: Vectors, path: Path) -> int:
    """Write tensors into a file and return its checksum."""
    from safetensors import SafetensorError

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in vectors.items()}
    try:
        host.disk.save_tensors(tensors, path)
    except SafetensorError as error:
        raise OSError(f"{path} can't be written: {error}") from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors creates files that only their owner can read
    return _checksum(path)


def _link(source: Path, target: Path) -> bool:
    """Make a hard link. False if the file is gone or its file system has no links."""
    try:
        host.disk.link(source, target)
    except OSError:
        return False
    return True


def versions() -> str:
    """The libraries that determine the last digits of a number."""
    return f"fedsash {own_version()} and torch {torch.__version__}"


def _note_of_versions(path: Path) -> list[str]:
    """A line if other versions have saved the state at `path`: its numbers may go on with other last digits."""
    before = manifest(path).get("versions")
    now = versions()
    if before in (None, now):
        return []
    return [f"{path} was saved by {before}, and goes on with {now}"]


def _checksum(path: Path) -> int:
    """The checksum of a file (CRC-32)."""
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            value = zlib.crc32(chunk, value)
    return value
