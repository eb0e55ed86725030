"""What `save_to_disk` of Hugging Face's `datasets` writes: Arrow files, for one data set or several splits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....settings.errors import DataError, check, some
from ....system.paths import inside
from . import parquet
from .memory import content, damages
from .splits import Files, ImageSplits, spellings

STATE = "state.json"
SPLITS = "dataset_dict.json"


def matches(folder: Path) -> bool:
    """Whether the folder is one of `save_to_disk`."""
    return (folder / STATE).is_file() or (folder / SPLITS).is_file()


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The Arrow files of each split. A data set without splits is the first one."""
    if (folder / STATE).is_file():
        return {splits[0]: _arrows(folder)}
    names = [str(name) for name in _json(folder / SPLITS).get("splits", ())]
    found = {split: next((name for name in spellings(split) if name in names), None) for split in splits}
    right = f"must hold the split {splits[0]}; there is {some(names)}"
    check(found[splits[0]] is not None, "path", str(folder), right)
    return {split: _arrows(inside(folder, name)) for split, name in found.items() if name is not None}


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The chosen columns, as in Parquet files."""
    return parquet.read(folder, files, columns, unpacked)


def _arrows(folder: Path) -> list[Path]:
    with damages(folder / STATE):
        found = [inside(folder, str(file["filename"])) for file in _json(folder / STATE)["_data_files"]]
    check(bool(found), "path", str(folder), f"{STATE} names no file")
    missing = next((file for file in found if not file.is_file()), None)
    if missing is not None:
        raise DataError(f"{missing} is missing; {folder / STATE} names it")
    return found


def _json(file: Path) -> dict[str, Any]:
    with damages(file):
        found = json.loads(content(file))
    if not isinstance(found, dict):
        raise DataError(f"{file} can't be read: it must hold a table")
    return found
