"""Folders of image files, one for each class, in folders of splits, domains or both: Tiny-ImageNet and PACS."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....settings.errors import DataError, SettingError, check, some
from .memory import read_bytes, reading
from .splits import Files, ImageSplit, ImageSplits, name_of, visible_files

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
    return any(file.suffix.lower() in ENDINGS for file in visible_files(folder))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The images below `folder/train` and so on. Without a folder for any split, all images are training data.

    A line in the log counts images that can't be read. Raises `SettingError` if there is a folder for testing and none
    for training.
    """
    images = {}
    for split in splits:
        split_folder = _split_folder(folder, split)
        if split_folder is not None:
            images[split] = _images(split_folder)
    train = splits[0]
    if train in images:
        return {split: files for split, files in images.items() if files}
    requirement = f"holds no folder {train} beside {', '.join(images)}: set train_split to that of the training images"
    check(not images, "path", str(folder), requirement)
    return {train: _images(folder)}


def beside(folder: Path, files: Files) -> list[Path]:
    """The lists of classes."""
    lists: list[Path] = []
    for split in files:
        lists += _lists_of_classes(_split_folder(folder, split) or folder)
    return lists


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The path of each image. Its class is its folder; its domain, if any, is the folder around that.

    A folder `images` in between is ignored. If a split has a file `*annotations.txt`, the classes come from the first
    of them: each of its lines begins with an image's name and its class.
    """
    parts = {}
    for split, images in files.items():
        split_folder = _split_folder(folder, split) or folder
        lists = _lists_of_classes(split_folder)
        values = _by_list(images, lists[0]) if lists else _by_folder(images, split_folder)
        arrays = {key: np.array(names) for key, names in values.items()}
        parts[split] = ImageSplit(images, arrays, str(split_folder))
    return ImageSplits(parts)


def _lists_of_classes(split_folder: Path) -> list[Path]:
    return sorted(split_folder.glob(ANNOTATIONS))


def _split_folder(folder: Path, split: str) -> Path | None:
    """The folder of a split: its name in any case, or with "ing" behind it."""
    name = name_of(split, sorted(file.name for file in folder.iterdir() if file.is_dir()))
    if name is None:
        return None
    return folder / name


def _images(folder: Path) -> list[Path]:
    """The images below a folder, in the order of their names. A line in the log counts those that can't be read.

    Raises `DataError` for a link to nothing: it may have been a class.
    """
    images = []
    unreadable: Counter[str] = Counter()
    for file in visible_files(folder):
        ending = file.suffix.lower()
        if ending in ENDINGS:
            images.append(file)
        elif ending in OTHERS:
            unreadable[ending] += 1
        elif file.is_symlink() and not file.exists():
            raise DataError(f"{file} is a link to {file.readlink()}, which is not there: mend the link, or delete it")
    if unreadable:
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in sorted(unreadable.items()))
        log.warning("%s: such images can't be read and are left out: %s; save them as PNG or JPEG", folder, kinds)
    return sorted(images)


def _by_folder(images: list[Path], folder: Path) -> dict[str, list[str]]:
    """The classes, and with two levels of folders the domains."""
    parents = []
    for file in images:
        names = file.relative_to(folder).parts[:-1]
        parents.append([name for name in names if name != "images"])
    depth = len(parents[0])
    requirement = f"must lie in {folder}/CLASS/"
    if depth >= 2:
        requirement = f"must lie in {folder}/DOMAIN/CLASS/"
    for file, parent in zip(images, parents, strict=True):
        if len(parent) != depth or depth not in (1, 2):
            raise SettingError("", "image", str(file), requirement)
    values = {"y": [parent[-1] for parent in parents]}
    if depth == 2:
        values["domain"] = [parent[0] for parent in parents]
    return values


def _by_list(images: list[Path], annotations: Path) -> dict[str, list[str]]:
    """The classes from lines such as `val_0.JPEG  n03444034  0 32 44 62`."""
    with reading(annotations):
        lines = read_bytes(annotations).decode().splitlines()
    rows = [line.split() for line in lines if line.strip()]
    labels = {}
    for number, row in enumerate(rows, 1):
        if len(row) < 2:
            raise SettingError.at(f"{annotations}: line", [number], "must be the name of an image and its class")
        labels[row[0]] = row[1]
    names = [file.name for file in images]
    missing = [name for name in names if name not in labels]
    check(not missing, str(annotations), some(missing), "must have a line for every image")
    surplus = sorted(labels.keys() - set(names))
    check(not surplus, str(annotations), some(surplus), f"there are no such images in {annotations.parent}")
    return {"y": [labels[name] for name in names]}
