"""The common result of all file formats: one table for each split, with pixels or references to encoded images."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....settings.errors import SettingError, check, some
from .memory import reading

Pixels: TypeAlias = NDArray[np.uint8]
StoredImage: TypeAlias = bytes | Path | Pixels
"""One image: the bytes of an image file, the path of one, or its pixels `[H, W, channels]`."""
Files: TypeAlias = dict[str, list[Path]]
"""The files of each split, in the order in which they are read."""

log = logging.getLogger("fedsash")
VALIDATION = ("valid", "val", "validation")
"""The names under which the split for validation may be stored."""
NAMES = {"y": "labels", "domain": "domains", "user": "users", "coarse": "coarse labels"}
"""The columns in words."""
PIECE = re.compile(r"(?P<number>\d+)(-of-(?P<count>\d+)(-[0-9a-f]+)?)?")
"""What stands after the name of a split in that of a piece; the hub's older files end with a hash."""

SYSTEM = ("__MACOSX", "lost+found")
"""Folders that systems make."""


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """One split of `n` samples before decoding.

    `images` are pixels, uint8 `[n, H, W, channels]`, or the stored images one by one. `Decoder` decodes those of a
    batch, `pixels.decode` decodes all of them. `columns` has the `n` integers or strings of `y` and, if the files have
    them, of `domain`, `user` and `coarse`. `where` is the beginning of error messages about an image.
    """

    images: Pixels | Sequence[StoredImage]
    columns: Mapping[str, NDArray[Any]]
    where: str

    def __post_init__(self) -> None:
        check(len(self.images) > 0, self.where, [], "must hold at least one image")
        for name, values in self.columns.items():
            requirement = f"must be one for each of {len(self.images)} images"
            check(len(values) == len(self.images), f"{self.where}: number of {NAMES[name]}", len(values), requirement)


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """All splits that were read, and for each column the names of its numbers, if the files have them."""

    parts: dict[str, ImageSplit]
    names: dict[str, list[str]] = field(default_factory=dict)


class FileFormat(Protocol):
    """A file format of data sets: a module with these functions."""

    def matches(self, folder: Path) -> bool:
        """Whether the folder holds data in this format."""

    def files(self, folder: Path, splits: Sequence[str]) -> Files:
        """The files of each of these splits that exists. Raises `SettingError` if the first split has no files."""

    def read(self, folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
        """The content of the files. `columns` names the columns of files that have named columns.

        A packed file may take `unpacked` GB of memory (see `memory.check_unpacked`).

        Raises `SettingError` or `DataError` for wrong or damaged files.
        """


def folder_with(folder: Path, *patterns: str) -> Path | None:
    """The only folder that has a file like one of `patterns`: `folder` or up to two levels below it; None without one.

    Raises `SettingError` if several folders have one.
    """
    folders = set()
    for depth in ("", "*/", "*/*/"):
        for pattern in patterns:
            folders |= {file.parent for file in folder.glob(depth + pattern)}
    names = sorted(str(one.relative_to(folder)) for one in folders)
    check(len(folders) < 2, "path", str(folder), f"{patterns[0]} is in several folders; choose one of {names}")
    return next(iter(folders), None)


def visible_files(folder: Path, above: Sequence[Path] = ()) -> Iterator[Path]:
    """The files below a folder, without what is hidden: systems and editors keep copies there.

    Empty folders are among them: one in the place of a file is named when it is read. Linked folders are entered, but
    none that the way down has passed already (`above`): it would never end. Raises `DataError` for a folder that can't
    be read.
    """
    passed = [*above, folder.resolve()]
    with reading(folder), os.scandir(folder) as entries:
        is_folder = {Path(entry.path): entry.is_dir() for entry in entries}
    if above and not is_folder:
        yield folder
    for path in is_folder:
        if path.name.startswith(".") or path.name in SYSTEM:
            continue
        if not is_folder[path]:
            yield path
        elif path.resolve() not in passed:
            yield from visible_files(path, passed)


def split_names(split: str) -> tuple[str, ...]:
    """The names under which a split may be stored."""
    if split in VALIDATION:
        return VALIDATION
    return (split,)


def forms_of(split: str) -> Iterator[str]:
    """The names of a split's files and folders in small letters: these may be in any case, and have "ing" behind."""
    for name in split_names(split):
        yield name.lower()
        yield f"{name.lower()}ing"


def name_of(split: str, names: Iterable[str]) -> str | None:
    """The one of the names that is a split's, if there is one."""
    names_by_form = {name.lower(): name for name in names}
    return next((names_by_form[form] for form in forms_of(split) if form in names_by_form), None)


def is_of(split: str, stem: str) -> bool:
    """Whether a file's name without its ending is a split's, or that of a piece of it: `train-00000-of-00002`."""
    name, _, piece = stem.partition("-")
    return name.lower() in forms_of(split) and (not piece or PIECE.fullmatch(piece) is not None)


def files_of(split: str, present: Sequence[Path], folder: Path) -> list[Path]:
    """Those of the files in a folder that are a split's: `train.csv`, or its pieces `train-00000-of-00002.parquet`.

    Raises `SettingError` if they have two names, such as `train.csv` and `training.csv`, if they are in several
    folders, or if they are not one whole.
    """
    files = [file for file in present if is_of(split, file.stem)]
    names = {file.stem.partition("-")[0] for file in files}
    requirement = f"must call the split {split} by one name, not {' and '.join(sorted(names))}"
    check(len(names) < 2, "path", str(folder), requirement)
    folders = sorted({str(file.parent.relative_to(folder)) for file in files})
    check(len(folders) < 2, "path", str(folder), f"{split} is in several folders; choose one of {folders}")
    _check_whole(split, files, folder)
    return files


def _check_whole(split: str, files: Sequence[Path], folder: Path) -> None:
    """Raise `SettingError` if pieces `NUMBER-of-COUNT` of a split are missing, or its rows are there twice."""
    names = some([file.name for file in files])
    requirement = f"must hold the split {split} once; there are {names}"
    check(len({file.name.lower() for file in files}) == len(files), "path", str(folder), requirement)
    numbers = []
    counts = set()
    for file in files:
        piece = PIECE.fullmatch(file.stem.partition("-")[2])
        if piece is not None and piece["count"]:
            numbers.append(int(piece["number"]))
            counts.add(int(piece["count"]))
    if not numbers:
        return
    is_one_export = len(counts) == 1 and len(set(numbers)) == len(files)
    check(is_one_export, "path", str(folder), requirement)
    [count] = counts
    requirement = f"must hold all {count} pieces of {split}; there are only {names}"
    check(len(numbers) == count, "path", str(folder), requirement)


def splits_to_find(train: str, test: str) -> list[str]:
    """The splits to look for: also one for validation, which is used without a test split, or at least named."""
    splits = [train, test]
    if not {train, test} & set(VALIDATION):
        splits.append(VALIDATION[0])
    return splits


def chosen_test_split(files: Files, test: str, where: str) -> str | None:
    """The split of `files` that is the test set: `test`, else the one for validation, else None.

    A line in the log says that the validation split is used as the test set, or that it is not used.
    """
    valid = next((split for split in VALIDATION if split in files and split != test), None)
    if test in files:
        if valid is not None:
            log.warning("%s: its validation split is not used: there is a test split", where)
        return test
    if valid is not None:
        log.warning("%s: it has no split %r, so its validation split is the test set", where, test)
    return valid


def numbered(
    column: str, values: dict[str, NDArray[Any]], names: list[str] | None, count: int | None
) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """The numbers of a column in each split, and their names.

    Integers for which the files have names, or that have a known `count`, are not changed. Other values (strings, or
    integers of unknown range) become their positions in the sorted list of all values. Raises `SettingError` for a
    number out of range, or if there are not `count` different values.
    """
    are_integers = [np.issubdtype(array.dtype, np.integer) for array in values.values()]
    requirement = "must be numbers in all of them, or words in all"
    check(len(set(are_integers)) == 1, NAMES[column], list(values), requirement)
    if are_integers[0]:
        for split, array in values.items():
            check(int(array.max()) < 2**63, f"{NAMES[column]} of {split}", int(array.max()), "must be below 2^63")
        values = {split: array.astype(np.int64) for split, array in values.items()}
    if not are_integers[0] or (names is None and count is None):
        distinct = np.unique(np.concatenate(list(values.values())))
        names = [str(value).encode(errors="backslashreplace").decode() for value in distinct]
        values = {split: np.searchsorted(distinct, array) for split, array in values.items()}
    if not names:
        names = [str(i) for i in range(count or 0)]
    if count is None:
        count = len(names)
    check(len(names) == count, f"number of different {NAMES[column]}", len(names), f"must be {count}")
    for split, array in values.items():
        bad = np.flatnonzero((array < 0) | (array >= count))
        if bad.size:
            value = int(array[bad[0]])
            raise SettingError.at(f"{NAMES[column]} of {split}, row {bad[0]}", value, f"must be 0 to {count - 1}")
    return {split: array.astype(np.int64) for split, array in values.items()}, names
