"""The form of FEMNIST: LEAF's JSON files (Caldas et al. 2018)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....settings.errors import DataError, brief, check
from .memory import content, damages
from .pixels import progress
from .splits import Files, ImageSplit, ImageSplits, Pixels, home

TIMES = 8
"""What the numbers in a JSON file take in memory, in sizes of the file."""


def matches(folder: Path) -> bool:
    """Whether JSON files in a folder `train`, or an `all_data*.json`, are in the folder or up to two levels below."""
    return _home(folder) is not None


def _home(folder: Path) -> Path | None:
    return home(folder, "train/*.json") or home(folder, "all_data*.json")


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The files of `train` and `test`. If LEAF has not split the samples yet, all files are training data."""
    place = _home(folder) or folder
    if place.name != "train":
        return {splits[0]: sorted(place.glob("all_data*.json"))}
    found = {split: sorted((place.parent / split).glob("*.json")) for split in splits}
    return {split: its for split, its in found.items() if its}


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """Images `[n, H, H, 1]`, labels, and as `user` the name of each sample's user."""
    parts = {}
    with progress("reading JSON", sum(map(len, files.values()))) as advance:
        for split, its in files.items():
            x = []
            y = []
            user = []
            for file in its:
                for name, pixels, labels in _users(file):
                    x.append(pixels)
                    y.append(labels)
                    user += [name] * len(labels)
                advance(1)
            check(bool(x), str(its[0].parent), split, "must hold at least one user")
            check(len({pixels.shape[1:] for pixels in x}) == 1, str(its[0].parent), split, "images differ in size")
            columns_ = {"y": np.concatenate(y), "user": np.array(user, dtype=object)}
            parts[split] = ImageSplit(np.concatenate(x), columns_, str(its[0].parent))
    return ImageSplits(parts)


def _users(file: Path) -> list[tuple[str, Pixels, Any]]:
    """The name, images and labels of each user in a file."""
    with damages(file):
        found = json.loads(content(file, TIMES))
    keys = ("users", "num_samples", "user_data")
    fits = isinstance(found, dict) and all(key in found for key in keys)
    check(fits, str(file), type(found).__name__, "must have the keys users, num_samples and user_data")
    users, counts, data = (found[key] for key in keys)
    fits = isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)
    check(fits, str(file), keys, "must be a list, a list and a dictionary")
    check(len(users) == len(counts), f"{file}: num_samples", len(counts), f"must be one for each of {len(users)} users")
    distinct = {*map(str, users)}
    check(len(distinct) == len(users), f"{file}: users", f"{len(users)} names", f"must all differ; {len(distinct)} do")
    return [_user(file, *given, data) for given in zip(users, counts, strict=True)]


def _user(file: Path, name: Any, count: int, data: Mapping[str, Any]) -> tuple[str, Pixels, Any]:
    check(isinstance(name, str), f"{file}: users", name, "must be words")
    where = f"{file}: user {brief(name)[1:-1]}"
    samples = data.get(name, {})
    check(isinstance(samples, dict), where, type(samples).__name__, "must be a dictionary")
    check("x" in samples and "y" in samples, where, sorted(samples), "must have x and y")
    for key in ("x", "y"):
        check(isinstance(samples[key], list), f"{where}: {key}", samples[key], "must be a list")
        check(len(samples[key]) == count, f"{where}: number of {key}", len(samples[key]), f"must be {count}")
    return name, _images(samples["x"], where), _labels(samples["y"], where)


def _images(values: list[Any], where: str) -> Pixels:
    """Images `[n, H, H, 1]` from one list of `H * H` numbers from 0 to 1 for each."""
    try:
        x = np.array(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise DataError(f"{where}: x: must have the same number of values for each image") from None
    side = isqrt(x.shape[-1])
    square = x.ndim == 2 and side * side == x.shape[1] > 0
    check(square, f"{where}: x", list(x.shape), "must be the pixels of square images, one row for each image")
    check(bool(((x >= 0) & (x <= 1)).all()), f"{where}: x", "a pixel out of range", "must be numbers from 0 to 1")
    return (x * 255).round().astype(np.uint8).reshape(-1, side, side, 1)


def _labels(values: list[Any], where: str) -> NDArray[np.int64]:
    wrong = next((value for value in values if type(value) is not int or not -(2**63) <= value < 2**63), None)
    check(wrong is None, f"{where}: y", wrong, "must be whole numbers below 2^63")
    return np.array(values, dtype=np.int64)
