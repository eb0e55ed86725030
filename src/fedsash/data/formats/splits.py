"""What every form gives: a table a split, whose images are pixels or the places of encoded images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...basics.errors import check

Pixels: TypeAlias = NDArray[np.uint8]
Place: TypeAlias = bytes | Path | Pixels
"""One image: the bytes of an image file, the path of one, or its pixels `[H, W, channels]`."""
Files: TypeAlias = dict[str, list[Path]]
"""The files of each split, in the order in which they are read."""

VALIDATION = ("valid", "val", "validation")


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """One split of `n` samples, nothing decoded yet.

    `images` are pixels, uint8 `[n, H, W, channels]`, or the place of each image: whoever wants to decode only what a
    batch needs keeps these places, `pixels.decode` decodes them all. `columns` has the `n` integers or words of `y`
    and, where the files have them, of `domain`, `user` and `coarse`. `where` begins a line about one of the images.
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
    """All splits that were read, and the names that the files give to the numbers of a column."""

    parts: dict[str, ImageSplit]
    names: dict[str, list[str]] = field(default_factory=dict)


class Form(Protocol):
    """One way in which data sets lie in folders: a module with these functions."""

    def matches(self, folder: Path) -> bool:
        """Whether the folder holds data in this form."""

    def files(self, folder: Path, splits: Sequence[str]) -> Files:
        """The files of each of these splits that is there; `ValueError` if there is none of the first."""

    def read(self, folder: Path, files: Files, columns: Mapping[str, str | None]) -> ImageSplits:
        """What the files hold. `columns` names the columns of files that have such names; `ValueError` in one line."""


def home(folder: Path, *marks: str) -> Path | None:
    """The one folder, this or up to two levels below it, that holds a file like one of `marks`; None without any."""
    found = {file.parent for depth in ("", "*/", "*/*/") for mark in marks for file in folder.glob(depth + mark)}
    places = sorted(str(place.relative_to(folder)) for place in found)
    check(len(found) < 2, "path", str(folder), f"{marks[0]} is in several folders, choose one: {places}")
    return next(iter(found), None)


def spellings(split: str) -> tuple[str, ...]:
    """The names under which a split may be stored."""
    return VALIDATION if split in VALIDATION else (split,)


def numbered(
    column: str, values: dict[str, NDArray[Any]], names: list[str] | None, count: int | None
) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """The numbers of a column in each split, and their names.

    Integers that the files name, or of which there are `count`, stay as they are. Any other values (words, integers of
    no known range) become their place in the sorted list of them all. Raises `ValueError` for a number out of range,
    or if the values' number is not `count`.
    """
    whole = all(np.issubdtype(array.dtype, np.integer) for array in values.values())
    if not whole or (names is None and count is None):
        known = np.unique(np.concatenate(list(values.values())))
        names = [str(value) for value in known]
        values = {split: np.searchsorted(known, array) for split, array in values.items()}
    names = names or [str(i) for i in range(count or 0)]
    wanted = len(names) if count is None else count
    check(len(names) == wanted, f"number of different {NAMES[column]}", len(names), f"must be {wanted}")
    for split, array in values.items():
        bad = np.flatnonzero((array < 0) | (array >= wanted))
        if bad.size:
            value = int(array[bad[0]])
            check(False, f"{NAMES[column]} of {split}, row {bad[0]}", value, f"must be 0 to {wanted - 1}")
    return {split: array.astype(np.int64) for split, array in values.items()}, names


def some(names: Sequence[str]) -> str:
    """The first few names, for a line of an error message."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
