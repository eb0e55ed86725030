"""Labelled images in any form, from files to a `Source`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
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
from .formats.pixels import AS_STORED, Decoder, PixelFormat, check_levels, decode, headers
from .formats.splits import chosen_test_split, numbered, splits_to_find

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
    pixel_format: PixelFormat = AS_STORED
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
    dataset = formats.find(path, splits_to_find(settings.train_split, settings.test_split))
    if settings.must_have:
        dataset.check_named(settings.columns)
    requirement = f"there is no such split in {path}, only {', '.join(dataset.files) or 'none'}"
    check(settings.train_split in dataset.files, "train_split", settings.train_split, requirement)
    is_known = settings.test_split in ("test", *dataset.files)
    check(is_known, "test_split", settings.test_split, f"there is no such split in {path}")
    test_split = chosen_test_split(dataset.files, settings.test_split, path)
    # A validation split that is not used is not read.
    used = {split: files for split, files in dataset.files.items() if split in (settings.train_split, test_split)}
    content, names = _kept_or_read(replace(dataset, files=used), settings)
    train = _samples(content, settings.train_split, settings.labels)
    if test_split is None:
        train, test = hold_out(train, settings.test, seed)
    else:
        test = _samples(content, test_split, settings.labels)
    label_names = tuple(names["y" if settings.labels == "fine" else "coarse"])
    domain_names = tuple(names.get("domain", ()))
    user_names = tuple(names.get("user", ()))
    return Source(train, test, len(label_names), settings.transform, label_names, domain_names, user_names=user_names)


def _kept_or_read(dataset: formats.DatasetFiles, settings: ReadingSettings) -> Content:
    """The content of the files, from the cache if they were decoded before. See `_content`."""
    files: list[Path] = []
    for split_files in dataset.files.values():
        files += split_files
    files += dataset.beside
    # What the decoded images depend on, besides the files: part of the kept file's name.
    how = [
        list(dataset.files),
        dict(settings.columns),
        vars(settings.pixel_format),
        dict(settings.counts),
        settings.names,
        settings.shape,
    ]
    limit = {"auto": SHARE * free(torch.device("cpu")), "once": math.inf, "batches": 0.0}[settings.decode]
    return cached(files, how, limit, lambda: _content(dataset, settings, limit))


def kinds(path: str, columns: Mapping[str, str | None], most: int) -> list[tuple[tuple[int, int], str]]:
    """Width and height, and the mode, of at most so many images of each split in a folder.

    Raises errors as `load` does.
    """
    table = formats.find(path, splits_to_find("train", "test")).read(columns)
    headers_of_images = []
    for part in table.parts.values():
        headers_of_images += [(header.size, header.mode) for header in headers(part, most)]
    return headers_of_images


def _content(dataset: formats.DatasetFiles, settings: ReadingSettings, limit: float = math.inf) -> Content:
    """All splits: `split.x` (uint8 NHWC), `split.y` and so on, and the names of labels and domains.

    Images stay encoded if their pixels would take `limit` bytes or more.
    """
    table = dataset.read(settings.columns, settings.unpacked)
    content: dict[str, Features] = {}
    names_by_key: dict[str, Any] = {}
    for key in ("y", "domain", "user", "coarse"):
        values = {split: part.columns[key] for split, part in table.parts.items() if key in part.columns}
        if values:
            names = table.names.get(key)
            if not names and key == "y":
                names = list(settings.names)
            numbers, names_by_key[key] = numbered(key, values, names or None, settings.counts.get(key))
            for split, array in numbers.items():
                content[f"{split}.{key}"] = torch.from_numpy(array)
    decoders = {}
    for split, part in table.parts.items():
        check_levels(part, settings.unpacked)
        decoders[split] = Decoder(part, settings.pixel_format, settings.unpacked)
    for decoder in decoders.values():
        where = f"{decoder.part.where}: height and width of images"
        size = decoder.shape[:2]
        check(settings.shape in (None, size), where, size, f"must be {settings.shape}")
        check(0 not in size, where, size, "must be at least 1")
    if sum(decoder.bytes for decoder in decoders.values()) < limit:
        for split, pixels in decode(decoders).items():
            content[f"{split}.x"] = torch.from_numpy(pixels)
    else:
        for split, decoder in decoders.items():
            content[f"{split}.x"] = EncodedImages(decoder)
    return content, names_by_key


def _samples(content: Mapping[str, Any], split: str, labels: str) -> Samples:
    """The samples of a split, with fine or coarse `labels`."""
    fields_of_split = {}
    for name, values in content.items():
        if name.startswith(f"{split}."):
            fields_of_split[name.removeprefix(f"{split}.")] = values
    if labels == "coarse":
        check("coarse" in fields_of_split, "labels", labels, f"there are no coarse labels in {split}")
        fields_of_split["y"] = fields_of_split["coarse"]
    return Samples(**fields_of_split)


@dataclass(frozen=True)
class Images(NamedDataset, name="images"):
    """Labelled images of one size, from a folder in any of the usual forms or from the Hugging Face hub.

    A folder may hold Parquet files as on the hub (`train.parquet`, or `train-00000-of-00002.parquet` and so on), what
    `save_to_disk` of `datasets` wrote, idx files, CIFAR's pickles, LEAF's JSON, or one folder of images for each class
    (see docs/how-to/datasets.md). Only Parquet files and saved data sets have named columns.

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
        _ = self.transform  # which checks mean and std

    @property
    def transform(self) -> Transform:
        """The transform of the images."""
        return Transform(self.mean, self.std, self.crop, self.flip)

    def load(self, seed: int = 0) -> Source:
        """The images. Without a test split, `seed` decides which of them become the test set."""
        settings = ReadingSettings(
            columns={
                "image": self.image,
                "y": self.label,
                "domain": self.domain,
                "user": self.user,
                "coarse": self.coarse,
            },
            train_split=self.train_split,
            test_split=self.test_split,
            test=self.test,
            pixel_format=PixelFormat(self.channels, self.size),
            transform=self.transform,
            decode=self.decode,
            unpacked=self.unpacked,
            must_have=True,
        )
        return load(self.path, settings, seed)
