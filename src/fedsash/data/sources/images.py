"""Labelled images in any form, from files to a `Source`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch

from ...settings.errors import check
from ...settings.limits import Count, CountFromZero, Fraction, Gigabytes
from ...settings.setting import Accepts, default
from ...vector.storage import free
from ..encoded import EncodedImages, Features
from ..samples import Samples
from ..source import NamedDataset, Source, hold_out
from ..transform import PLAIN, Transform
from . import formats
from .cache import Content, cached
from .formats.memory import UNPACKED
from .formats.pixels import AS_IT_IS, Decoder, Look, decode, headers
from .formats.splits import asked, numbered, tested

Decode: TypeAlias = Literal["auto", "once", "batches"]
"""When images are decoded: `"once"`, then kept; `"batches"`, batch by batch; `"auto"`: once if they fit into memory."""

SHARE = 0.25
"""Decoded images fit into memory if they take less than this share of the free memory."""


@dataclass(frozen=True)
class ReadingSettings:
    """How a data set is read and its images are changed. None or empty means: as in the files.

    `columns` names the columns of Parquet files, under the keys `image`, `y`, `domain`, `user` and `coarse`; with
    `must_have` other files, which have no named columns, are refused if it names any. `counts`
    is the required number of different labels, domains and coarse labels. `shape` is the required height and width of
    every image. `names` are the labels' names if the files have none. Without a split `test_split`, the share `test` of
    each user, of each domain or of all samples becomes the test set. `labels = "coarse"` learns the coarse labels. One
    image or packed file may take `unpacked` GB of memory (see `formats.memory`).
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    train_split: str = "train"
    test_split: str = "test"
    test: float = 0.1
    look: Look = AS_IT_IS
    transform: Transform = PLAIN
    counts: Mapping[str, int] = field(default_factory=dict)
    shape: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    labels: Literal["fine", "coarse"] = "fine"
    decode: Decode = "auto"
    unpacked: float = UNPACKED
    must_have: bool = False


def load(path: str, settings: ReadingSettings, seed: int = 0) -> Source:
    """The images in a folder or on the hub. Without a test split, `seed` decides which images become the test set.

    Images that are decoded at once are kept as tensors in the user's cache folder (`$FEDSASH_CACHE`).
    """
    found = formats.find(path, asked(settings.train_split, settings.test_split))
    if settings.must_have:
        found.check_named(settings.columns)
    right = f"there is no such split in {path}, only {', '.join(found.files) or 'none'}"
    check(settings.train_split in found.files, "train_split", settings.train_split, right)
    there = settings.test_split in ("test", *found.files)
    check(there, "test_split", settings.test_split, f"there is no such split in {path}")
    test_split = tested(found.files, settings.test_split, path)
    used = (settings.train_split, test_split)
    found = replace(found, files={split: files for split, files in found.files.items() if split in used})
    files = [file for split in found.files.values() for file in split]
    how = [
        list(found.files),
        dict(settings.columns),
        vars(settings.look),
        dict(settings.counts),
        settings.names,
        settings.shape,
    ]
    limit = {"auto": SHARE * free(torch.device("cpu")), "once": math.inf, "batches": 0.0}[settings.decode]
    content, info = cached([*files, *found.beside], how, limit, lambda: _content(found, settings, limit))
    train = _samples(content, settings.train_split, settings.labels)
    test = None if test_split is None else _samples(content, test_split, settings.labels)
    if test is None:
        train, test = hold_out(train, settings.test, seed)
    names = tuple(info["y" if settings.labels == "fine" else "coarse"])
    domain_names, user_names = (tuple(info.get(key, ())) for key in ("domain", "user"))
    return Source(train, test, len(names), settings.transform, names, domain_names, user_names=user_names)


def kinds(path: str, columns: Mapping[str, str | None], most: int) -> list[tuple[tuple[int, int], str]]:
    """Width and height, and the mode, of at most so many images of each split in a folder.

    Raises errors as `load` does.
    """
    found = formats.find(path, asked("train", "test"))
    return [kind for part in found.read(columns).parts.values() for kind in headers(part, most)]


def _content(found: formats.DatasetFiles, settings: ReadingSettings, limit: float = math.inf) -> Content:
    """All splits: `split.x` (uint8 NHWC), `split.y` and so on, and the names of labels and domains.

    Images stay encoded if their pixels would take `limit` bytes or more.
    """
    table = found.read(settings.columns, settings.unpacked)
    content: dict[str, Features] = {}
    info: dict[str, Any] = {}
    for key in ("y", "domain", "user", "coarse"):
        values = {split: part.columns[key] for split, part in table.parts.items() if key in part.columns}
        if values:
            known = table.names.get(key) or (list(settings.names) if key == "y" else None) or None
            numbers, info[key] = numbered(key, values, known, settings.counts.get(key))
            content |= {f"{split}.{key}": torch.from_numpy(array) for split, array in numbers.items()}
    decoders = {split: Decoder(part, settings.look, settings.unpacked) for split, part in table.parts.items()}
    for decoder in decoders.values():
        where = f"{decoder.part.where}: height and width of images"
        size = decoder.shape[:2]
        check(settings.shape in (None, size), where, size, f"must be {settings.shape}")
        check(0 not in size, where, size, "must be at least 1")
    if sum(decoder.bytes for decoder in decoders.values()) < limit:
        pixels = decode(decoders)
        return content | {f"{split}.x": torch.from_numpy(array) for split, array in pixels.items()}, info
    return content | {f"{split}.x": EncodedImages(decoder) for split, decoder in decoders.items()}, info


def _samples(content: Mapping[str, Any], split: str, labels: str) -> Samples:
    found = {name.removeprefix(f"{split}."): x for name, x in content.items() if name.startswith(f"{split}.")}
    if labels == "coarse":
        check("coarse" in found, "labels", labels, f"there are no coarse labels in {split}")
        found["y"] = found["coarse"]
    return Samples(**found)


@dataclass(frozen=True)
class Images(NamedDataset, name="images"):
    """Labelled images of one size, from a folder in any of the usual forms or from the Hugging Face hub.

    A folder may hold Parquet files as on the hub (`train.parquet`, or `train-00000-of-00002.parquet` and so on), what
    `save_to_disk` of `datasets` wrote, idx files, CIFAR's pickles, LEAF's JSON, or one folder of images for each class
    (see docs/how-to/data.md). Only Parquet files and saved data sets have named columns.

    Raises `SettingError` or `DataError` if the folder, the columns or the images are wrong, and `LibraryError` if a
    library is missing.
    """

    path: str
    """the name of a data set on the hub, or a folder"""
    image: str | None = None
    """the column of images in Parquet files and in saved data sets; left out: `image` or `img`"""
    label: str | None = None
    """the column of labels in Parquet files and in saved data sets; left out: `label`"""
    domain: str | None = None
    """the column of domains in Parquet files and in saved data sets; left out: `domain` if there is one"""
    user: str | None = None
    """the column of users in Parquet files and in saved data sets; left out: none"""
    coarse: str | None = None
    """the column of coarse labels in Parquet files and in saved data sets; left out: none"""
    channels: Literal[1, 3] | None = None
    """1 converts all images to grey, 3 to RGB; left out: they stay as they are"""
    size: Count | None = None
    """the height and width in pixels: the shorter side is scaled to it, and the middle square is used; left out: images
    stay as they are"""
    train_split: str = "train"
    """the name of the split for training"""
    test_split: str = "test"
    """the name of the split that is the test set. If there is no split `test`, it is the validation split (`val`,
    `valid` or `validation`)"""
    test: Fraction = 0.1
    """the share of each user's samples, else of each domain's, else of all, that becomes the test set, if there is
    neither a test split nor a validation split"""
    mean: Accepts[tuple[float, ...], Sequence[float]] = default(())
    """the mean of each channel, as of `Transform`"""
    std: Accepts[tuple[float, ...], Sequence[float]] = default(())
    """the standard deviation of each channel, as of `Transform`"""
    crop: CountFromZero = 0
    """the border for random crops in training, in pixels, as of `Transform`; 0: no crop"""
    flip: bool = False
    """whether half of the images are mirrored in training, as of `Transform`"""
    decode: Decode = "auto"
    """when images are decoded. `"once"`: all at the beginning; they are kept as tensors in memory and in the user's
    cache folder (`$FEDSASH_CACHE`). `"batches"`: for every batch again. `"auto"`: once if they take less than a quarter
    of the free memory"""
    unpacked: Gigabytes = UNPACKED
    """how many GB of memory one image, or one packed file, may take, or 20 times its size on the disk if that is more.
    So a small file that would fill the memory is refused before it is unpacked"""

    def __post_init__(self) -> None:
        check(self.path != "", "Images.path", self.path, "must be a folder or the name of a data set on the hub")
        check(self.test_split != self.train_split, "Images.test_split", self.test_split, "must not be train_split")
        _ = self.transform

    @property
    def transform(self) -> Transform:
        """The transform of the images."""
        return Transform(self.mean, self.std, self.crop, self.flip)

    def load(self, seed: int = 0) -> Source:
        """The images. Without a test split, `seed` decides which of them become the test set."""
        columns = {"image": self.image, "y": self.label, "domain": self.domain}
        columns |= {"user": self.user, "coarse": self.coarse}
        look = Look(self.channels, self.size)
        splits = (self.train_split, self.test_split, self.test)
        how: dict[str, Any] = {"decode": self.decode, "unpacked": self.unpacked, "must_have": True}
        settings = ReadingSettings(columns, *splits, look, self.transform, **how)
        return load(self.path, settings, seed)
