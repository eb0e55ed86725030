"""What `save_to_disk` of Hugging Face's `datasets` writes: Arrow files, for one data set or several splits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....settings.errors import DataError, SettingError, check, some
from ....system.paths import inside
from . import parquet
from .memory import read_bytes, reading
from .splits import Files, ImageSplits, name_of

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
    split_files = {}
    for split in splits:
        name = name_of(split, names)
        if name is not None:
            split_files[split] = _arrows(inside(folder, name))
        elif split == splits[0]:
            requirement = f"must hold the split {split}; there is {some(names)}"
            raise SettingError("", "path", str(folder), requirement)
    return split_files


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The chosen columns, as in Parquet files."""
    return parquet.read(folder, files, columns, unpacked)


def _arrows(folder: Path) -> list[Path]:
    """The files that the state of a data set names, each of which must be there."""
    with reading(folder / STATE):
        names = [str(entry["filename"]) for entry in _json(folder / STATE)["_data_files"]]
        files = [inside(folder, name) for name in names]
    check(len(files) > 0, "path", str(folder), f"{STATE} names no file")
    for file in files:
        if not file.is_file():
            raise DataError(f"{file} is missing; {folder / STATE} names it")
    return files


def _json(file: Path) -> dict[str, Any]:
    with reading(file):
        content = json.loads(read_bytes(file))
    if not isinstance(content, dict):
        raise DataError(f"{file} can't be read: it must hold a table")
    return content
