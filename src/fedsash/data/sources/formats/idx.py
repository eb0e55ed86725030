"""The file format of MNIST and Fashion-MNIST: idx files, plain or compressed with gzip (LeCun et al. 1998)."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from ....settings.errors import SettingError, check
from ....system.paths import plain_file
from .memory import check_room, check_unpacked, reading
from .splits import Files, ImageSplit, ImageSplits, Pixels, folder_with

PREFIX = {"train": "train", "test": "t10k"}
IMAGES = 0x00000803
LABELS = 0x00000801
"""The first four bytes of a file: two zeros, 8 for unsigned bytes, and the number of dimensions."""


def matches(folder: Path) -> bool:
    """Whether a `train-images-idx3-ubyte`, plain or `.gz`, is in the folder or up to two levels below it."""
    return _home(folder) is not None


def _home(folder: Path) -> Path | None:
    return folder_with(folder, *_spellings("train", "images-idx3"))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The file of images and the file of labels of each split."""
    home = _home(folder) or folder
    pairs = {}
    for split, prefix in PREFIX.items():
        images = _one(home, prefix, "images-idx3")
        labels = _one(home, prefix, "labels-idx1")
        if split not in splits or images is labels is None:
            continue
        if images is None:
            raise _missing(home, prefix, "images-idx3")
        if labels is None:
            raise _missing(home, prefix, "labels-idx1")
        pairs[split] = [images, labels]
    return pairs


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """Images `[n, rows, columns, 1]` and their labels."""
    parts = {}
    for split, (images, labels) in files.items():
        pixels = _read(images, IMAGES, unpacked)
        y = _read(labels, LABELS, unpacked)
        requirement = f"must be {len(pixels)}, as many as there are images in {images.name}"
        check(len(y) == len(pixels), f"{labels}: number of labels", len(y), requirement)
        parts[split] = ImageSplit(pixels[..., None], {"y": y}, str(images))
    return ImageSplits(parts)


def _spellings(prefix: str, kind: str) -> list[str]:
    """The names that a file may have, such as `train-images-idx3-ubyte`, `train-images.idx3-ubyte` and both `.gz`."""
    content, dimensions = kind.split("-")
    names = [f"{prefix}-{content}-{dimensions}-ubyte", f"{prefix}-{content}.{dimensions}-ubyte"]
    return [*names, *(f"{name}.gz" for name in names)]


def _one(folder: Path, prefix: str, kind: str) -> Path | None:
    for name in _spellings(prefix, kind):
        if (folder / name).is_file():
            return folder / name
    return None


def _missing(folder: Path, prefix: str, kind: str) -> SettingError:
    return SettingError("", "path", str(folder), f"must hold {prefix}-{kind}-ubyte, plain or .gz")


def _read(file: Path, magic: int, unpacked: float) -> Pixels:
    """The array in a file. The file holds a magic number, the dimensions (32 bits each, big-endian), then the bytes.

    No more is read than the header says, and one byte to see that nothing follows.
    """
    with reading(file), _opened(file) as opened:
        shape = _shape(file, opened.read(4 + 4 * (magic & 0xFF)), magic)
        size = math.prod(shape)
        check_unpacked(size, file.stat().st_size, unpacked, str(file))
        check_room(size, str(file))
        raw = opened.read(size + 1)
    start = 4 + 4 * len(shape)
    requirement = f"must be {start + size} bytes, for {' x '.join(map(str, shape))}"
    check(len(raw) <= size, f"{file}: size", "more", requirement)
    check(len(raw) == size, f"{file}: size", start + len(raw), requirement)
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _opened(file: Path) -> BufferedIOBase:
    if file.suffix == ".gz":
        return gzip.open(plain_file(file))
    return plain_file(file).open("rb")


def _shape(file: Path, header: bytes, magic: int) -> tuple[int, ...]:
    """The dimensions in the header of a file. Raises `SettingError` unless it begins with the number `magic`."""
    number = int.from_bytes(header[:4], "big")
    length = 4 + 4 * (magic & 0xFF)
    check(len(header) >= 4 and number == magic, f"{file}: magic number", f"0x{number:08x}", f"must be 0x{magic:08x}")
    check(len(header) == length, f"{file}: size", len(header), f"must be at least the {length} bytes of a header")
    return tuple(np.frombuffer(header[4:], dtype=">u4").tolist())
