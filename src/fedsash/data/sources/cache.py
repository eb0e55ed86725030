"""Decoded data sets, kept between runs: one safetensors file for each, in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from ...system.paths import cache_folder, plain_file, replaced
from ..encoded import Features
from .formats.memory import reading

Content = tuple[dict[str, Features], dict[str, Any]]
"""Tensors and encoded images by name, and further values that JSON can hold."""

FORMAT = 2
"""The number of the kept files' format; another one makes all of them anew."""

log = logging.getLogger("fedsash")


def cached(files: list[Path], how: Any, limit: float, make: Callable[[], Content]) -> Content:
    """The kept result of `make()` for these files and this `how`. If there is none, call `make` and keep its result.

    A kept result is used as long as path, size and modification time of all files are the same. If it is damaged, it is
    made again. If it can't be written, it is made again in the next run. So the cache never raises an error of its own.
    A kept file of `limit` bytes or more is not read. Images that are still encoded are not kept.

    Raises `DataError` if one of `files` is no plain file.
    """
    key = json.dumps([FORMAT, [_stamp(file) for file in files], how])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    kept = cache_folder() / f"{name}.safetensors"
    if kept.is_file() and kept.stat().st_size < limit:
        try:
            return _read(kept)
        except Exception as error:  # a damaged file can make its reader raise anything
            log.warning("%s is damaged (%s): decoding the data again", kept, error)
    content, info = make()
    tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if len(tensors) < len(content):  # some images are still encoded
        return content, info
    try:
        _write(kept, tensors, info)
    except OSError as error:
        log.warning("the decoded data can't be kept in %s (%s): the next run decodes them again", kept.parent, error)
    return content, info


def _stamp(file: Path) -> tuple[str, int, int]:
    """What tells whether a file has changed: its path, size and time of modification."""
    with reading(file):
        stat = plain_file(file).stat()
    return str(file.absolute()), stat.st_size, stat.st_mtime_ns


def _checksum(tensors: dict[str, Tensor], about: str) -> str:
    total = zlib.crc32(about.encode())
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(tensors[name].contiguous().view(-1).numpy().data, total)
    return f"{total:08x}"


def _read(file: Path) -> Content:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        checksum, about = opened.metadata()["fedsash"].split(" ", 1)
        tensors: dict[str, Any] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 -- not a dict
    if _checksum(tensors, about) != checksum:
        raise ValueError("wrong checksum")
    return tensors, json.loads(about)


def _write(file: Path, tensors: dict[str, Tensor], info: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    about = json.dumps(info)
    with replaced(file) as unfinished:
        # One entry only: safetensors writes several entries in an order that differs between runs.
        save_file(tensors, unfinished, {"fedsash": f"{_checksum(tensors, about)} {about}"})
