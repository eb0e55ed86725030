"""The file format of FEMNIST: LEAF's JSON files (Caldas et al. 2018)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....settings.errors import DataError, SettingError, brief, check
from .memory import read_bytes, reading
from .pixels import progress
from .splits import Files, ImageSplit, ImageSplits, Pixels, folder_with

TIMES = 8
"""What the numbers in a JSON file take in memory, in sizes of the file."""


def matches(folder: Path) -> bool:
    """Whether JSON files in a folder `train`, or an `all_data*.json`, are in the folder or up to two levels below."""
    return _home(folder) is not None


def _home(folder: Path) -> Path | None:
    return folder_with(folder, "train/*.json") or folder_with(folder, "all_data*.json")


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The files of `train` and `test`. If LEAF has not split the samples yet, all files are training data."""
    home = _home(folder) or folder
    if home.name != "train":
        return {splits[0]: sorted(home.glob("all_data*.json"))}
    split_files = {}
    for split in splits:
        present = sorted((home.parent / split).glob("*.json"))
        if present:
            split_files[split] = present
    return split_files


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """Images `[n, H, H, 1]`, labels, and as `user` the name of each sample's user."""
    parts = {}
    with progress("reading JSON", sum(map(len, files.values()))) as advance:
        for split, split_files in files.items():
            x = []
            y = []
            user = []
            for file in split_files:
                for name, pixels, labels in _users(file):
                    x.append(pixels)
                    y.append(labels)
                    user += [name] * len(labels)
                advance(1)
            where = str(split_files[0].parent)
            check(len(x) > 0, where, split, "must hold at least one user")
            sizes = {pixels.shape[1:] for pixels in x}
            check(len(sizes) == 1, where, split, "images differ in size")
            values = {"y": np.concatenate(y), "user": np.array(user, dtype=object)}
            parts[split] = ImageSplit(np.concatenate(x), values, where)
    return ImageSplits(parts)


def _users(file: Path) -> list[tuple[str, Pixels, Any]]:
    """The name, images and labels of each user in a file."""
    with reading(file):
        content = json.loads(read_bytes(file, TIMES))
    keys = ("users", "num_samples", "user_data")
    has_keys = isinstance(content, dict) and all(key in content for key in keys)
    check(has_keys, str(file), type(content).__name__, "must have the keys users, num_samples and user_data")
    users = content["users"]
    counts = content["num_samples"]
    data = content["user_data"]
    has_types = isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)
    check(has_types, str(file), keys, "must be a list, a list and a dictionary")
    check(len(users) == len(counts), f"{file}: num_samples", len(counts), f"must be one for each of {len(users)} users")
    distinct = set(map(str, users))
    requirement = f"must all differ; {len(distinct)} do"
    check(len(distinct) == len(users), f"{file}: users", f"{len(users)} names", requirement)
    return [_user(file, name, count, data) for name, count in zip(users, counts, strict=True)]


def _user(file: Path, name: Any, count: int, data: Mapping[str, Any]) -> tuple[str, Pixels, Any]:
    """The name, images and labels of a user who has `count` samples."""
    check(isinstance(name, str), f"{file}: users", name, "must be words")
    where = f"{file}: user {brief(name)[1:-1]}"
    samples = data.get(name, {})
    check(isinstance(samples, dict), where, type(samples).__name__, "must be a dictionary")
    check("x" in samples and "y" in samples, where, sorted(samples), "must have x and y")
    for key in ("x", "y"):
        values = samples[key]
        check(isinstance(values, list), f"{where}: {key}", values, "must be a list")
        check(len(values) == count, f"{where}: number of {key}", len(values), f"must be {count}")
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
    in_range = bool(((x >= 0) & (x <= 1)).all())
    check(in_range, f"{where}: x", "a pixel out of range", "must be numbers from 0 to 1")
    return (x * 255).round().astype(np.uint8).reshape(-1, side, side, 1)


def _labels(values: list[Any], where: str) -> NDArray[np.int64]:
    """Labels `[n]`. Raises `SettingError` for one that is no whole number of int64."""
    for value in values:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise SettingError.at(f"{where}: y", value, "must be whole numbers below 2^63")
    return np.array(values, dtype=np.int64)
