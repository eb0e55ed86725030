"""The form of MNIST and Fashion-MNIST: idx files, plain or compressed with gzip (LeCun et al. 1998)."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....settings.errors import check
from ....system.paths import plain_file
from .memory import check_room, check_unpacked, damages
from .splits import Files, ImageSplit, ImageSplits, Pixels, home

PREFIX = {"train": "train", "test": "t10k"}
IMAGES = 0x00000803
LABELS = 0x00000801
"""The first four bytes of a file: two zeros, 8 for unsigned bytes, and the number of dimensions."""


def matches(folder: Path) -> bool:
    """Whether a `train-images-idx3-ubyte`, plain or `.gz`, is in the folder or up to two levels below it."""
    return home(folder, *_spellings("train", "images", 3)) is not None


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The file of images and the file of labels of each split."""
    place = home(folder, *_spellings("train", "images", 3)) or folder
    found = {}
    for split, prefix in PREFIX.items():
        pair = [_one(place, _spellings(prefix, "images", 3)), _one(place, _spellings(prefix, "labels", 1))]
        if split in splits and pair != [None, None]:
            for file, kind in zip(pair, ("images-idx3", "labels-idx1"), strict=True):
                check(file is not None, "path", str(place), f"must hold {prefix}-{kind}-ubyte, plain or .gz")
            found[split] = [file for file in pair if file is not None]
    return found


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """Images `[n, rows, columns, 1]` and their labels."""
    parts = {}
    for split, (images, labels) in files.items():
        pixels = _read(images, IMAGES, unpacked)
        y = _read(labels, LABELS, unpacked)
        right = f"must be {len(pixels)}, as many as there are images in {images.name}"
        check(len(y) == len(pixels), f"{labels}: number of labels", len(y), right)
        parts[split] = ImageSplit(pixels[..., None], {"y": y}, str(images))
    return ImageSplits(parts)


def _spellings(prefix: str, kind: str, dimensions: int) -> list[str]:
    return [f"{prefix}-{kind}{dot}idx{dimensions}-ubyte{gz}" for gz in ("", ".gz") for dot in "-."]


def _one(place: Path, names: list[str]) -> Path | None:
    return next((place / name for name in names if (place / name).is_file()), None)


def _read(file: Path, magic: int, unpacked: float) -> Pixels:
    """The array in a file. The file holds a magic number, the dimensions (32 bits each, big-endian), then the bytes.

    No more is read than the header says, and one byte to see that nothing follows.
    """
    with damages(file), gzip.open(plain_file(file)) if file.suffix == ".gz" else plain_file(file).open("rb") as opened:
        shape = _shape(file, opened.read(4 + 4 * (magic & 0xFF)), magic)
        size = math.prod(shape)
        check_unpacked(size, file.stat().st_size, unpacked, str(file))
        check_room(size, str(file))
        raw = opened.read(size + 1)
    start = 4 + 4 * len(shape)
    found = "more" if len(raw) > size else start + len(raw)
    check(len(raw) == size, f"{file}: size", found, f"must be {start + size} bytes, for {' x '.join(map(str, shape))}")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _shape(file: Path, header: bytes, magic: int) -> tuple[int, ...]:
    found = int.from_bytes(header[:4], "big")
    length = 4 + 4 * (magic & 0xFF)
    check(len(header) >= 4 and found == magic, f"{file}: magic number", f"0x{found:08x}", f"must be 0x{magic:08x}")
    check(len(header) == length, f"{file}: size", len(header), f"must be at least the {length} bytes of a header")
    return tuple(np.frombuffer(header[4:], dtype=">u4").tolist())
