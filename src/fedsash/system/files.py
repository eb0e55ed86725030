"""Files: written completely or not at all. A JSON table has a checksum of itself, by which it is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..settings.errors import RunError, one_line
from .checksum import json_checksum
from .host import NEW, host, opened, sync_folder, unlink_if_there, write_all
from .paths import beside, clear_beside, is_left_over, naming, plain_file

CHECKSUM = "checksum"


def table(path: Path, sealed: bool = False) -> dict[str, Any]:
    """The content of a JSON file, which must be an object. If it has a `checksum`, this must be that of the rest.

    One that must be `sealed` has it. Raises `FileNotFoundError`, and `RunError` if the file is damaged.
    """
    try:
        content = json.loads(plain_file(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise RunError(f"{path} must be a JSON object")
    checksum = content.pop(CHECKSUM, None)
    if checksum is None and sealed:
        raise RunError(f"{path} is damaged: it has no checksum")
    if checksum not in (None, json_checksum(content)):
        raise RunError(f"{path} is damaged: its checksum is another one")
    return content


def is_ours(path: Path) -> bool:
    """Whether `write_table` wrote the file, and nobody has changed it since."""
    try:
        table(path, sealed=True)
    except (OSError, RunError):
        return False
    return True


def clear(folder: Path) -> None:
    """Remove what killed processes have left of files that they were writing. This one must write none there.

    It may have the number of a killed one: a container's first process always has the same.
    """
    for path in folder.glob(".*.tmp"):
        has_our_number = path.name.endswith(f".{host.process.number}.tmp")
        if (has_our_number or is_left_over(path)) and not path.is_dir():
            host.disk.unlink(path)


def write_table(path: Path | str, data: Mapping[str, Any]) -> None:
    """Write an object as strict JSON, completely or not at all. Numbers that are not finite become `null`.

    It gets a `checksum` of its own, which `table` checks and removes.
    """
    content = _as_read(data)
    content[CHECKSUM] = json_checksum(content)
    replace_file(path, _text(content))


def json_of(data: Any) -> bytes:
    """Data as strict JSON, with a line for each item; a list of plain values is one line.

    Numbers that are not finite become `null`.
    """
    return _text(_as_read(data))


def _text(content: Any) -> bytes:
    return f"{_lines(content)}\n".encode()


def _as_read(data: Any) -> Any:
    """Data as they are read back from strict JSON: keys that are numbers, for example, become texts."""
    return json.loads(json.dumps(strict(data), allow_nan=False))


def _lines(value: Any, margin: str = "") -> str:
    """A value as JSON, whose lines after the first one begin with `margin`."""
    inside = f"{margin}  "
    if isinstance(value, dict) and value:
        items = [f"{_word(key)}: {_lines(item, inside)}" for key, item in value.items()]
        opening, closing = "{}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = [_lines(item, inside) for item in value]
        opening, closing = "[]"
    else:
        return _word(value)
    between = f",\n{inside}"
    return f"{opening}\n{inside}{between.join(items)}\n{margin}{closing}"


def _word(value: Any) -> str:
    """A value as JSON in one line, without a control character, so that a terminal can print it."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def strict(value: Any) -> Any:
    """The value in the types of strict JSON: arrays become lists, NaN and infinity become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def flat(table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table and of the tables in it, each under its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{place}{key}.")
        else:
            yield place + key, value


def replace_file(path: Path | str, *content: bytes | memoryview) -> None:
    """Write a file completely or not at all: a reader sees the old file or the new one, even after a crash.

    The parts of its content follow each other. Raises `OSError`, which names the file, for example if the disk is full.
    """
    path = Path(path)
    try:
        _write_beside(path, *content)
        host.disk.rename(beside(path), path)
        sync_folder(path.parent)
    except BaseException:
        unlink_if_there(beside(path))
        raise


def _write_beside(path: Path, *content: bytes | memoryview) -> None:
    """Write the content of a file into a new file beside it."""
    writing = beside(path)
    try:
        with naming(path, writing):
            clear_beside(path)
            unlink_if_there(writing)  # a link there must not lead to another file
            with opened(writing, NEW) as handle:
                write_all(handle, *content)
                host.disk.sync(handle)
    except BaseException:
        unlink_if_there(writing)
        raise
