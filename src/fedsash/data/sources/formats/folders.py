"""Folders of image files, one for each class, in folders of splits, domains or both: Tiny-ImageNet and PACS."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ....settings.errors import check, some
from .memory import content, damages
from .splits import Files, ImageSplit, ImageSplits, spellings

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jfif", ".jpe")
OTHERS = (
    *(".heic", ".heif", ".avif", ".jxl", ".jp2", ".j2k", ".tga", ".psd", ".exr", ".svg", ".dcm"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"),
)
"""The endings of images that can't be read."""
ANNOTATIONS = "*annotations.txt"

log = logging.getLogger("fedsash")


def matches(folder: Path) -> bool:
    """Whether there are image files below the folder."""
    return any(file.suffix.lower() in ENDINGS for file in _below(folder))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The images below `folder/train` and so on. Without a folder for any split, all images are training data.

    A line in the log counts images that can't be read. Raises `SettingError` if there is a folder for testing and none
    for training.
    """
    found = {split: _images(place) for split in splits if (place := _place(folder, split)) is not None}
    if splits[0] in found:
        return {split: its for split, its in found.items() if its}
    right = f"holds no folder {splits[0]} beside {', '.join(found)}: set train_split to that of the training images"
    check(not found, "path", str(folder), right)
    return {splits[0]: _images(folder)}


def beside(folder: Path, files: Files) -> list[Path]:
    """The lists of classes."""
    return [file for split in files for file in sorted((_place(folder, split) or folder).glob(ANNOTATIONS))]


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The path of each image. Its class is its folder; its domain, if any, is the folder around that.

    A folder `images` in between is ignored. If a split has a file `*annotations.txt`, the classes come from that file:
    each of its lines begins with an image's name and its class.
    """
    parts = {}
    for split, its in files.items():
        place = _place(folder, split) or folder
        listed = next(iter(place.glob(ANNOTATIONS)), None)
        columns_ = _by_folder(its, place) if listed is None else {"y": _by_list(its, listed)}
        parts[split] = ImageSplit(its, {key: np.array(values) for key, values in columns_.items()}, str(place))
    return ImageSplits(parts)


def _place(folder: Path, split: str) -> Path | None:
    """The folder of a split: its name in any case, or with "ing" behind it."""
    there = {place.name.lower(): place for place in sorted(folder.iterdir()) if place.is_dir()}
    names = (f"{name.lower()}{end}" for name in spellings(split) for end in ("", "ing"))
    return next((there[name] for name in names if name in there), None)


def _below(folder: Path) -> Iterator[Path]:
    """What is below the folder, without what is hidden: systems and editors keep copies there."""
    for file in folder.rglob("*.*"):
        if not any(part.startswith(".") or part == "__MACOSX" for part in file.relative_to(folder).parts):
            yield file


def _images(folder: Path) -> list[Path]:
    there = list(_below(folder))
    if left := Counter(file.suffix.lower() for file in there if file.suffix.lower() in OTHERS):
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in sorted(left.items()))
        log.warning("%s: such images can't be read and are left out: %s; save them as PNG or JPEG", folder, kinds)
    return sorted(file for file in there if file.suffix.lower() in ENDINGS)


def _by_folder(images: list[Path], place: Path) -> dict[str, list[str]]:
    """The classes, and with two levels of folders the domains."""
    found = [[part for part in file.relative_to(place).parts[:-1] if part != "images"] for file in images]
    for file, parts in zip(images, found, strict=True):
        right = f"must lie in {place}/CLASS/" if len(found[0]) < 2 else f"must lie in {place}/DOMAIN/CLASS/"
        check(len(parts) == len(found[0]) in (1, 2), "image", str(file), right)
    keys = ("domain", "y")[-len(found[0]) :]
    return {key: [parts[i] for parts in found] for i, key in enumerate(keys)}


def _by_list(images: list[Path], listed: Path) -> list[str]:
    """The classes from lines such as `val_0.JPEG  n03444034  0 32 44 62`."""
    with damages(listed):
        rows = [line.split() for line in content(listed).decode().splitlines() if line.strip()]
    short = [number for number, row in enumerate(rows, 1) if len(row) < 2]
    check(not short, f"{listed}: line", short[:1], "must be the name of an image and its class")
    labels = {row[0]: row[1] for row in rows}
    missing = [file.name for file in images if file.name not in labels]
    check(not missing, str(listed), some(missing), "must have a line for every image")
    surplus = sorted(labels.keys() - {file.name for file in images})
    check(not surplus, str(listed), some(surplus), f"there are no such images in {listed.parent}")
    return [labels[file.name] for file in images]
