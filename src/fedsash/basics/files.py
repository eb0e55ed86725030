"""Files: written completely or not at all, and checked when they are read again."""

from __future__ import annotations

import json
import math
import os
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..settings.errors import RunError, one_line
from .checksum import json_checksum
from .paths import beside, clear_beside, naming, plain_file, sync_folder

INDEX = "files.json"
CHECKSUM = "checksum"
GROWING = frozenset({"metrics.jsonl"})
"""Files to which rows are appended. Their entries are those of their beginning."""
REMADE = ("goal.json", "partition.json", "summary.json", "timeline.json", "models/")
"""Files that a resumed run writes again without reading them. A sweep also writes the config of a run again."""

Seal = tuple[int, int]
"""The size of a content in bytes, and its CRC-32 checksum."""


def seal(content: bytes, before: Seal = (0, 0)) -> Seal:
    """The seal of a content, or of the content of the seal `before` followed by this one."""
    return before[0] + len(content), zlib.crc32(content, before[1])


def read(path: Path) -> bytes:
    """The content of a file. If `write` wrote it, it must be what was written.

    Raises `FileNotFoundError`, and `RunError` if the file was removed, damaged or changed.
    """
    while True:
        entry = _entry(path)
        found = plain_file(path).read_bytes() if path.exists() else None
        if entry is None and found is None:
            raise FileNotFoundError(f"there is no file {path}")
        if found is not None and (entry is None or any(_fits(path, found, known) for known in entry[1])):
            return found
        if entry is not None and entry == _entry(path):  # else it was written while it was read
            word = "missing" if found is None else "damaged"
            raise RunError(f"{path} is {word}: {_what_to_do(path.relative_to(entry[0]), entry[0], found is None)}")


def there(path: Path) -> bool:
    """Whether a file is there, or was written and has been lost. `read` then raises an error that says so."""
    return path.exists() or _entry(path) is not None


def settled(path: Path) -> bool:
    """Whether `write` wrote the file and came to its end. It has not if its process was killed meanwhile."""
    entry = _entry(path)
    return entry is not None and len(entry[1]) == 1


def lost(folder: Path) -> list[str]:
    """The files that `write` has written there and that are gone, or of another size. Their content is not read.

    Raises `RunError` if `files.json` is damaged.
    """
    return [name for name, seals in _index(folder).items() if not _sized(folder / name, seals)]


def put_back(folder: Path, other: str) -> str:
    """What to do about a file of a run that nothing writes again: put the right one back, or the `other` way.

    A run of a sweep can be trained again.
    """
    if _swept(folder):
        return f"remove {folder}, and the command of its sweep trains it again"
    return f"put the right one back, or {other}"


def table(path: Path) -> dict[str, Any]:
    """The content of a JSON file, which must be an object. If it has a `checksum`, this must be that of the rest.

    Raises `FileNotFoundError`, and `RunError` if it is damaged.
    """
    return _parsed(path, read(path))


def write(folder: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Write files of a folder, each completely or not at all, with their seals in `files.json`.

    A name may have a folder, such as `models/a.safetensors`. While known files are replaced, `files.json` has their old
    seal and the new one, so whenever the process is killed, the files are as `files.json` says. Raises `OSError`, for
    example if the disk is full, and then leaves the old files.
    """
    ready: dict[str, Seal] = {}
    try:
        for name, content in contents:
            _write_beside(folder / name, content)
            ready[name] = seal(content)
        known = _index(folder)
        replaced = {name: [*known[name], new] for name, new in ready.items() if name in known}
        if replaced:
            _enter(folder, replaced)
        for name in ready:
            os.replace(beside(folder / name), folder / name)
        for changed in {(folder / name).parent for name in ready}:
            sync_folder(changed)
    except BaseException:
        for name in ready:
            beside(folder / name).unlink(missing_ok=True)
        raise
    _enter(folder, {name: [new] for name, new in ready.items()})


def grown(folder: Path, name: str, beginning: Seal) -> None:
    """Note the seal of a file to which something was appended."""
    _enter(folder, {name: [beginning]})


def clear(folder: Path) -> None:
    """Remove what a killed process has left of a file that it was writing."""
    for path in folder.glob(".*.tmp"):
        if not path.is_dir():
            path.unlink()


def write_table(path: Path | str, data: Mapping[str, Any]) -> None:
    """Write an object as strict JSON, completely or not at all. Numbers that are not finite become `null`.

    It gets a `checksum` of its own, which `table` checks and removes.
    """
    found: dict[str, Any] = json.loads(json_of(data))
    replace_file(path, json_of(found | {CHECKSUM: json_checksum(found)}))


def json_of(data: Any) -> bytes:
    """Data as strict JSON. Numbers that are not finite become `null`."""
    text = json.dumps(strict(data), indent=2, allow_nan=False).replace("\x7f", "\\u007f")  # a control character, too
    return f"{text}\n".encode()


def strict(value: Any) -> Any:
    """The value in the types of strict JSON: arrays become lists, NaN and infinity become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat(table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table and of the tables in it, each under its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{place}{key}.")
        else:
            yield place + key, value


def replace_file(path: Path | str, content: bytes) -> None:
    """Write a file completely or not at all: a reader sees the old file or the new one, even after a crash.

    Raises `OSError`, which names the file, for example if the disk is full.
    """
    path = Path(path)
    try:
        _write_beside(path, content)
        os.replace(beside(path), path)
        sync_folder(path.parent)
    except BaseException:
        beside(path).unlink(missing_ok=True)
        raise


def _write_beside(path: Path, content: bytes) -> None:
    """Write the content of a file into a new file beside it."""
    writing = beside(path)
    try:
        with naming(path, writing):
            clear_beside(path)
            writing.unlink(missing_ok=True)  # a link there must not lead to another file
            with writing.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        writing.unlink(missing_ok=True)
        raise


def _entry(path: Path) -> tuple[Path, list[Seal]] | None:
    """The folder whose `files.json` knows the file, and its seals: one, or also the one before while it is replaced."""
    for folder in list(path.parents)[:2]:
        name = path.relative_to(folder).as_posix()
        if name in (known := _index(folder)):
            return folder, known[name]
    return None


def _index(folder: Path) -> dict[str, list[Seal]]:
    """The seals of a folder's files, by name."""
    file = folder / INDEX
    try:
        content = plain_file(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if _of_another_program(folder, content):
        return {}
    try:
        listed = _parsed(file, content)["files"]
        return {name: [(int(size), int(crc)) for size, crc in seals] for name, seals in listed.items()}
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        raise RunError(f"{file} is damaged: remove it, and the other files are no longer checked") from None


def _of_another_program(folder: Path, content: bytes) -> bool:
    """Whether a file that has the name of our index has another form, in a folder that no run or sweep has written."""
    if any((folder / name).exists() for name in ("metrics.jsonl", "sweep.json")):
        return False
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return not isinstance(found, dict) or not {"files", CHECKSUM} <= found.keys()


def foreign(folder: Path, names: Iterable[str]) -> list[str]:
    """The files among `names` and `files.json` that are in the folder and that `write` did not write.

    A name of a folder stands for all files in it.
    """
    known = _index(folder)
    index = folder / INDEX
    found = [INDEX] if index.exists() and _of_another_program(folder, plain_file(index).read_bytes()) else []
    for name in names:
        place = folder / name
        files = [each for each in place.rglob("*") if not each.is_dir()] if place.is_dir() else [place]
        inside = [each.relative_to(folder).as_posix() for each in files if each.exists() or each.is_symlink()]
        found += [each for each in inside if each not in known]
    return sorted(found)


def _enter(folder: Path, seals: Mapping[str, list[Seal]]) -> None:
    known: dict[str, Any] = _index(folder) | dict(seals)
    write_table(folder / INDEX, {"files": known})


def _fits(path: Path, found: bytes, known: Seal) -> bool:
    return known == seal(found[: known[0]] if path.name in GROWING else found)


def _sized(path: Path, seals: Iterable[Seal]) -> bool:
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return any(size >= known if path.name in GROWING else size == known for known, _ in seals)


def _swept(folder: Path) -> bool:
    """Whether a run's folder is in that of a sweep."""
    return (folder.resolve().parent.parent / "sweep.json").exists()


def _what_to_do(name: Path, folder: Path, gone: bool) -> str:
    swept = _swept(folder)
    if swept and name.as_posix().startswith((*REMADE, "config.toml")):
        return f"{'' if gone else 'remove it, and '}the command of its sweep writes it again"
    if name.as_posix().startswith(REMADE):
        return f"write it again with {shlex.join(['fedsash', 'resume', str(folder)])}"
    return put_back(folder, f"remove {INDEX}, and the files of this folder are taken as they are")


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON: {one_line(error)}") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} must be a JSON object")
    checksum = found.pop(CHECKSUM, None)
    if checksum not in (None, json_checksum(found)):
        raise RunError(f"{path} is damaged: its checksum is another one")
    return found
