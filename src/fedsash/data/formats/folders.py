"""Folders of image files: a folder a class, below a split, a domain, or both; Tiny-ImageNet and PACS lie so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...basics.errors import check
from .splits import Files, ImageSplit, ImageSplits, some, spellings

ENDINGS = (".png", ".jpg", ".jpeg")
ANNOTATIONS = "*annotations.txt"


def matches(folder: Path) -> bool:
    """Whether there are image files below the folder."""
    return any(file.suffix.lower() in ENDINGS for file in folder.rglob("*.*"))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The images below `folder/train` and so on; where there is no such folder, all images as training data."""
    found = {split: _images(place) for split in splits if (place := _place(folder, split)) is not None}
    if splits[0] in found:
        return {split: its for split, its in found.items() if its}
    return {splits[0]: _images(folder)}


def read(folder: Path, files: Files, columns: Mapping[str, str | None]) -> ImageSplits:
    """Each image's path; its class is the folder it is in, and its domain, if there is one, the folder around that.

    A folder `images` in between counts for nothing. A split with a file `*annotations.txt`, whose lines begin with an
    image's name and its class, has its classes from there.
    """
    parts = {}
    for split, its in files.items():
        place = _place(folder, split) or folder
        listed = next(iter(place.glob(ANNOTATIONS)), None)
        columns_ = _by_folder(its, place) if listed is None else {"y": _by_list(its, listed)}
        parts[split] = ImageSplit(its, {key: np.array(values) for key, values in columns_.items()}, str(place))
    return ImageSplits(parts)


def _place(folder: Path, split: str) -> Path | None:
    return next((folder / name for name in spellings(split) if (folder / name).is_dir()), None)


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*.*") if file.suffix.lower() in ENDINGS)


def _by_folder(images: list[Path], place: Path) -> dict[str, list[str]]:
    """Classes, and domains where the folders are two deep."""
    found = [[part for part in file.relative_to(place).parts[:-1] if part != "images"] for file in images]
    for file, parts in zip(images, found, strict=True):
        right = f"must lie in {place}/CLASS/" if len(found[0]) < 2 else f"must lie in {place}/DOMAIN/CLASS/"
        check(len(parts) == len(found[0]) in (1, 2), "image", str(file), right)
    keys = ("domain", "y")[-len(found[0]) :]
    return {key: [parts[i] for parts in found] for i, key in enumerate(keys)}


def _by_list(images: list[Path], listed: Path) -> list[str]:
    """Classes from lines such as `val_0.JPEG  n03444034  0 32 44 62`."""
    rows = [line.split() for line in listed.read_text().splitlines() if line.strip()]
    short = [number for number, row in enumerate(rows, 1) if len(row) < 2]
    check(not short, f"{listed}: line", short[:1], "must be the name of an image and its class")
    labels = {row[0]: row[1] for row in rows}
    missing = [file.name for file in images if file.name not in labels]
    check(not missing, str(listed), some(missing), "must have a line for every image")
    surplus = sorted(labels.keys() - {file.name for file in images})
    check(not surplus, str(listed), some(surplus), f"there are no such images in {listed.parent}")
    return [labels[file.name] for file in images]
