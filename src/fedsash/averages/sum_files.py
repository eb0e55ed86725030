"""Running sums in files, `FOLDER/<round>.safetensors`, of 16 bytes a number."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..settings.errors import RunError
from ..system.files import replace_file
from ..system.host import make_folders
from .afterwards import RunningSum

TYPES = {torch.float64: "F64", torch.int64: "I64"}
"""What safetensors calls the types in a file."""


OTHERS = "; without this file the other sums can still be used"
"""What is said of a run's sum that can't be read."""


def kept(folder: Path) -> list[int]:
    """The rounds whose sums are saved, ascending."""
    return sorted(int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdigit())


def place(folder: Path, round: int) -> Path:
    """The file of the sum after `round`."""
    return folder / f"{round:08d}.safetensors"


def write(folder: Path, round: int, running_sum: RunningSum) -> None:
    """Write the sum after `round`, completely or not at all. Raises `OSError`, for example if the disk is full.

    These are the bytes that safetensors itself would write, without the copies in memory that it needs for that.
    """
    make_folders(folder)
    parts = {"count": torch.tensor([running_sum.count]), "high": running_sum.high, "low": running_sum.low}
    described: dict[str, object] = {"__metadata__": {"checksum": str(checksum(running_sum, round))}}
    content = []
    start = 0
    for name, values in parts.items():
        data = values.contiguous().view(torch.uint8).numpy().data
        shape = [] if name == "count" else list(values.shape)
        described[name] = {"dtype": TYPES[values.dtype], "shape": shape, "data_offsets": [start, start + len(data)]}
        content.append(data)
        start += len(data)
    header = json.dumps(described, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    replace_file(place(folder, round), len(header).to_bytes(8, "little"), header, *content)


def count(folder: Path, round: int) -> int:
    """The number of models in the sum after `round`. Raises `RunError` if its file can't be read."""
    with _opened(folder, round, OTHERS) as file:
        return int(file.get_tensor("count"))


def read(folder: Path, round: int, advice: str = OTHERS) -> RunningSum:
    """The sum after `round`. Raises `RunError`, which ends with the advice, if its file is missing or damaged."""
    with _opened(folder, round, advice) as file:
        running_sum = RunningSum(file.get_tensor("high"), file.get_tensor("low"), int(file.get_tensor("count")))
        if str(checksum(running_sum, round)) != file.metadata()["checksum"]:
            raise ValueError("not what was written")
        return running_sum


@contextmanager
def _opened(folder: Path, round: int, advice: str) -> Iterator[Any]:
    """The file of a sum. Whatever goes wrong inside becomes a `RunError` that names the file and gives the advice."""
    from safetensors import SafetensorError, safe_open

    file = place(folder, round)
    try:
        with safe_open(file, "pt") as opened:
            yield opened
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError):
        raise RunError(f"{file} is missing or damaged{advice}") from None


def checksum(running_sum: RunningSum, round: int) -> int:
    """The CRC-32 of the sum after `round`."""
    high = running_sum.high
    low = running_sum.low
    value = zlib.crc32(f"{round} {running_sum.count} {high.dtype} {low.dtype}".encode())
    for part in (high, low):
        value = zlib.crc32(part.contiguous().numpy().data, value)
    return value
