"""The form of Landmarks-User-160k: lists of users, images and classes, and the image files (Hsu et al. 2020)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....settings.errors import DataError, check
from ....system.paths import plain_file
from .memory import content, damages
from .splits import Files, ImageSplit, ImageSplits

LINE = 2**16
DIGITS = 18
"""The longest first line of a list, in characters, and the longest number in it."""
LAYOUTS = ("images/{0}.jpg", "train/{1}/{2}/{3}/{0}.jpg", "{0}.jpg")
"""Possible paths of the image with a given id: all in one folder, or as in the unpacked Google Landmarks v2."""


def matches(folder: Path) -> bool:
    """Whether a list `*train*.csv` with the columns `image_id` and `class` is in the folder or one level below."""
    return bool(_lists(folder, "train"))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The list of each split and its images. The list is `federated_train.csv`, `test.csv` or has the split's name."""
    found = {split: _lists(folder, split) for split in splits}
    for split, its in found.items():
        check(len(its) < 2, "path", str(folder), f"must hold one list for {split}, not {[file.name for file in its]}")
    return {split: [*its, *_places(folder, its[0])] for split, its in found.items() if its}


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The path of each image, its class and, if the list has the column `user_id`, its user."""
    parts = {}
    for split, (listed, *images) in files.items():
        values = _columns(listed)
        wrong = next((value for value in values["class"] if not value.isdecimal() or len(value) > DIGITS), None)
        check(wrong is None, f"{listed}: class", wrong, f"must be a whole number of at most {DIGITS} digits")
        columns_ = {"y": np.array(list(map(int, values["class"])))}
        if "user_id" in values:
            columns_["user"] = np.array(values["user_id"], dtype=object)
        parts[split] = ImageSplit(images, columns_, str(listed))
    return ImageSplits(parts)


def _lists(folder: Path, split: str) -> list[Path]:
    found = sorted(file for depth in ("", "*/") for file in folder.glob(f"{depth}*{split}*.csv"))
    return [file for file in found if {"image_id", "class"} <= set(_head(file))]


def _head(file: Path) -> list[str]:
    with damages(file), plain_file(file).open(newline="", encoding="utf-8", errors="replace") as opened:
        return next(csv.reader([opened.readline(LINE)]), [])


def _columns(file: Path) -> dict[str, list[str]]:
    with damages(file):
        text = content(file).decode("utf-8", errors="replace")
        head, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    for number, row in enumerate(rows, 1):
        check(len(row) == len(head), f"{file}: row {number}", row, f"must have {len(head)} values, {','.join(head)}")
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def _places(folder: Path, listed: Path) -> list[Path]:
    """The files of a list's images. The path of the first one decides which of `LAYOUTS` is used for all."""
    names = _columns(listed)["image_id"]
    check(len(names) > 0, str(listed), [], "must list at least one image")
    outside = next((name for name in names if {"/", "\\", "\0"} & {*name}), None)
    check(outside is None, f"{listed}: image_id", outside, "must be the name of an image, and no path")
    bases = [(base, layout) for base in (listed.parent, folder) for layout in LAYOUTS]
    for base, layout in bases:
        places = [base / layout.format(name, *name[:3].ljust(3)) for name in names]
        if places[0].is_file():
            missing = next((place for place in places if not place.is_file()), None)
            check(missing is None, f"{listed}: image_id", missing and missing.stem, f"there is no {missing}")
            return places
    right = f"there is no {', '.join(layout.format(names[0], *names[0][:3].ljust(3)) for layout in LAYOUTS)}"
    raise DataError(f"{listed}: image_id = {names[0]!r}: {right} in {folder}")
