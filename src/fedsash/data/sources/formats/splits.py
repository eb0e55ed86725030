"""The common result of all forms: one table for each split, with pixels or references to encoded images."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....settings.errors import SettingError, check

Pixels: TypeAlias = NDArray[np.uint8]
Place: TypeAlias = bytes | Path | Pixels
"""One image: the bytes of an image file, the path of one, or its pixels `[H, W, channels]`."""
Files: TypeAlias = dict[str, list[Path]]
"""The files of each split, in the order in which they are read."""

log = logging.getLogger("fedsash")
VALIDATION = ("valid", "val", "validation")


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """One split of `n` samples before decoding.

    `images` are pixels, uint8 `[n, H, W, channels]`, or the place of each image. `Decoder` decodes the places for a
    batch, `pixels.decode` decodes all of them. `columns` has the `n` integers or strings of `y` and, if the files have
    them, of `domain`, `user` and `coarse`. `where` is the beginning of error messages about an image.
    """

    images: Pixels | Sequence[Place]
    columns: Mapping[str, NDArray[Any]]
    where: str

    def __post_init__(self) -> None:
        check(len(self.images) > 0, self.where, [], "must hold at least one image")
        for name, values in self.columns.items():
            right = f"must be one for each of {len(self.images)} images"
            check(len(values) == len(self.images), f"{self.where}: number of {NAMES[name]}", len(values), right)


NAMES = {"y": "labels", "domain": "domains", "user": "users", "coarse": "coarse labels"}


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """All splits that were read, and for each column the names of its numbers, if the files have them."""

    parts: dict[str, ImageSplit]
    names: dict[str, list[str]] = field(default_factory=dict)


class Form(Protocol):
    """A file format of data sets: a module with these functions."""

    def matches(self, folder: Path) -> bool:
        """Whether the folder holds data in this form."""

    def files(self, folder: Path, splits: Sequence[str]) -> Files:
        """The files of each of these splits that exists. Raises `SettingError` if the first split has no files."""

    def read(self, folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
        """The content of the files. `columns` names the columns of files that have named columns.

        A packed file may take `unpacked` GB of memory (see `memory.check_unpacked`).

        Raises `SettingError` or `DataError` for wrong or damaged files.
        """


PIECE = re.compile(r"\d+(-of-\d+(-[0-9a-f]+)?)?")
"""What stands after the name of a split in that of a piece; the hub's older files end with a hash."""


def home(folder: Path, *marks: str) -> Path | None:
    """The only folder that has a file like one of `marks`: `folder` or up to two levels below it; None without one."""
    found = {file.parent for depth in ("", "*/", "*/*/") for mark in marks for file in folder.glob(depth + mark)}
    places = sorted(str(place.relative_to(folder)) for place in found)
    check(len(found) < 2, "path", str(folder), f"{marks[0]} is in several folders; choose one of {places}")
    return next(iter(found), None)


def spellings(split: str) -> tuple[str, ...]:
    """The names under which a split may be stored."""
    return VALIDATION if split in VALIDATION else (split,)


def is_of(file: Path, split: str) -> bool:
    """Whether a file is that of a split, or one of its pieces: `train.csv`, `train-00000-of-00002.parquet`."""
    name, _, piece = file.stem.partition("-")
    return name in spellings(split) and (not piece or PIECE.fullmatch(piece) is not None)


def asked(train: str, test: str) -> list[str]:
    """The splits to look for: also one for validation, which is used without a test split, or at least named."""
    return [train, test, *([] if {train, test} & set(VALIDATION) else VALIDATION[:1])]


def tested(files: Files, test: str, where: str) -> str | None:
    """The split of `files` that is the test set: `test`, else the one for validation, else None.

    A line in the log says that the validation split is used as the test set, or that it is not used.
    """
    valid = next((split for split in VALIDATION if split in files and split != test), None)
    if valid is not None:
        unused = "its validation split is not used: there is a test split"
        line = unused if test in files else f"it has no split {test!r}, so its validation split is the test set"
        log.warning("%s: %s", where, line)
    return test if test in files else valid


def numbered(
    column: str, values: dict[str, NDArray[Any]], names: list[str] | None, count: int | None
) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """The numbers of a column in each split, and their names.

    Integers for which the files have names, or that have a known `count`, are not changed. Other values (strings, or
    integers of unknown range) become their positions in the sorted list of all values. Raises `SettingError` for a
    number out of range, or if there are not `count` different values.
    """
    kinds = {split: np.issubdtype(array.dtype, np.integer) for split, array in values.items()}
    check(len(set(kinds.values())) == 1, NAMES[column], list(kinds), "must be numbers in all of them, or words in all")
    if whole := all(kinds.values()):
        for split, array in values.items():
            check(int(array.max()) < 2**63, f"{NAMES[column]} of {split}", int(array.max()), "must be below 2^63")
        values = {split: array.astype(np.int64) for split, array in values.items()}
    if not whole or (names is None and count is None):
        known = np.unique(np.concatenate(list(values.values())))
        names = [str(value).encode(errors="backslashreplace").decode() for value in known]
        values = {split: np.searchsorted(known, array) for split, array in values.items()}
    names = names or [str(i) for i in range(count or 0)]
    wanted = len(names) if count is None else count
    check(len(names) == wanted, f"number of different {NAMES[column]}", len(names), f"must be {wanted}")
    for split, array in values.items():
        bad = np.flatnonzero((array < 0) | (array >= wanted))
        if bad.size:
            value = int(array[bad[0]])
            raise SettingError.at(f"{NAMES[column]} of {split}, row {bad[0]}", value, f"must be 0 to {wanted - 1}")
    return {split: array.astype(np.int64) for split, array in values.items()}, names
