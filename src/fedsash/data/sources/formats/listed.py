"""The file format of Landmarks-User-160k: lists of users, images and classes, and the image files (Hsu et al. 2020)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....settings.errors import DataError, SettingError, check
from ....system.paths import plain_file
from .memory import read_bytes, reading
from .splits import Files, ImageSplit, ImageSplits

LINE = 2**16
"""The longest first line of a list, in characters."""
DIGITS = 18
"""The longest number of a class: all of so many digits are below 2^63."""
LAYOUTS = ("images/{0}.jpg", "train/{1}/{2}/{3}/{0}.jpg", "{0}.jpg")
"""Possible paths of the image with a given id: all in one folder, or as in the unpacked Google Landmarks v2."""


def matches(folder: Path) -> bool:
    """Whether a list `*train*.csv` with the columns `image_id` and `class` is in the folder or one level below."""
    return bool(_lists(folder, "train"))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The list of each split and its images. The list is `federated_train.csv`, `test.csv` or has the split's name."""
    lists_of_splits = {split: _lists(folder, split) for split in splits}
    for split, lists in lists_of_splits.items():
        names = [file.name for file in lists]
        check(len(lists) < 2, "path", str(folder), f"must hold one list for {split}, not {names}")
    split_files = {}
    for split, lists in lists_of_splits.items():
        if lists:
            split_files[split] = [lists[0], *_image_files(folder, lists[0])]
    return split_files


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The path of each image, its class and, if the list has the column `user_id`, its user."""
    parts = {}
    for split, (table, *images) in files.items():
        values = _columns(table)
        for label in values["class"]:
            if not label.isdecimal() or len(label) > DIGITS:
                requirement = f"must be a whole number of at most {DIGITS} digits"
                raise SettingError.at(f"{table}: class", label, requirement)
        arrays = {"y": np.array(list(map(int, values["class"])))}
        if "user_id" in values:
            arrays["user"] = np.array(values["user_id"], dtype=object)
        parts[split] = ImageSplit(images, arrays, str(table))
    return ImageSplits(parts)


def _lists(folder: Path, split: str) -> list[Path]:
    """The CSV files that list images and have the split in their name."""
    present = [*folder.glob(f"*{split}*.csv"), *folder.glob(f"*/*{split}*.csv")]
    return [file for file in sorted(present) if {"image_id", "class"} <= set(_head(file))]


def _head(file: Path) -> list[str]:
    """The names of the columns."""
    with reading(file), plain_file(file).open(newline="", encoding="utf-8", errors="replace") as opened:
        return next(csv.reader([opened.readline(LINE)]), [])


def _columns(file: Path) -> dict[str, list[str]]:
    """The values of each column by its name."""
    with reading(file):
        text = read_bytes(file).decode("utf-8", errors="replace")
        head, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    for number, row in enumerate(rows, 1):
        check(len(row) == len(head), f"{file}: row {number}", row, f"must have {len(head)} values, {','.join(head)}")
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def _image_files(folder: Path, table: Path) -> list[Path]:
    """The files of a list's images. The path of the first one decides which of `LAYOUTS` is used for all."""
    ids = _columns(table)["image_id"]
    check(len(ids) > 0, str(table), [], "must list at least one image")
    for name in ids:
        if "/" in name or "\\" in name or "\0" in name:
            raise SettingError.at(f"{table}: image_id", name, "must be the name of an image, and no path")
    for base in (table.parent, folder):
        for layout in LAYOUTS:
            if (base / _image_path(layout, ids[0])).is_file():
                images = [base / _image_path(layout, name) for name in ids]
                for image in images:
                    if not image.is_file():
                        raise SettingError.at(f"{table}: image_id", image.stem, f"there is no {image}")
                return images
    paths = ", ".join(_image_path(layout, ids[0]) for layout in LAYOUTS)
    raise DataError(f"{table}: image_id = {ids[0]!r}: there is no {paths} in {folder}")


def _image_path(layout: str, name: str) -> str:
    """The path of the image with an id. The unpacked Landmarks has folders for the id's first three characters."""
    return layout.format(name, *name[:3].ljust(3))
