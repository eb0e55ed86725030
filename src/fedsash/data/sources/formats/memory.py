"""What data may take in memory, checked by what their headers promise, before it is taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ....settings.errors import DataError, SettingError, raised_as
from ....system.paths import plain_file
from ....vector.storage import free

UNPACKED = 0.5
"""What one image or one packed file may take when it is unpacked, in GB, if the settings do not say."""

RATIO = 20
"""A file or an image may always take so many times its size on the disk. Photographs take about ten times."""

PIXEL = 4
"""What Pillow takes for one pixel, in bytes."""

SMALL = 2**26
"""So many bytes are taken without looking whether they are free."""


def check_unpacked(needed: int, packed: int, limit: float, where: str) -> None:
    """Raise `SettingError` if `packed` bytes on the disk need so many bytes in memory that they may be a bomb.

    They may need `limit` GB, or `RATIO` times `packed` if that is more.
    """
    if needed > max(limit * 1e9, RATIO * packed):
        gigabytes = needed / 1e9
        wanted = math.ceil(gigabytes * 10) / 10
        requirement = f"from {packed:,} bytes it may be at most {limit:g} GB; set unpacked = {wanted:g} if it is meant"
        raise SettingError.at(f"{where}: size in memory", f"{gigabytes:.1f} GB", requirement)


def check_room(needed: int, where: str) -> None:
    """Raise `SettingError` unless so many bytes are free. Without this the system would kill the process later."""
    if needed <= SMALL:
        return
    room = free(torch.device("cpu"))
    if needed > room:
        cure = f"there is {room / 1e9:.1f} GB of free memory: take fewer or smaller images, or a larger machine"
        raise SettingError.at(f"{where}: size in memory", f"{needed / 1e9:.1f} GB", cure)


def read_bytes(file: Path, times: int = 1) -> bytes:
    """The bytes of a plain file. `times` its size must be free in memory. Raises `DataError` or `SettingError`."""
    with reading(file):
        check_room(times * plain_file(file).stat().st_size, str(file))
        return file.read_bytes()


@contextmanager
def reading(file: Path | str) -> Iterator[None]:
    """Turn whatever a library raises for a damaged file into a `DataError` that names the file."""
    with raised_as(lambda why: DataError(f"{file} can't be read: {why}")):
        yield
