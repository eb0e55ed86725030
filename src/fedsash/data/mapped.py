"""Arrays that stay in their files: they are mapped into memory, and read where they are used."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings.errors import DataError, one_line
from ..vector.private_torch import PLAIN_RESULTS

ArrayLocation = tuple[Path, str, int, tuple[int, ...]]
"""Where an array lies: its file, its type, the offset in the file (in bytes), and its shape."""


class MappedTensor(Tensor):
    """A tensor whose memory is a part of a file. What is made of it is a plain tensor.

    Another process is sent the location, and maps the file, too: the processes of a machine share what was read of it.
    Nothing is written to the file.
    """

    __torch_function__ = PLAIN_RESULTS  # type: ignore[assignment]
    location: ArrayLocation

    def __reduce_ex__(self, protocol: Any) -> Any:
        return mapped, self.location

    def __deepcopy__(self, memo: dict[int, Any]) -> MappedTensor:
        return mapped(*self.location)


def mapped(file: Path, dtype: str, offset: int, shape: tuple[int, ...]) -> MappedTensor:
    """The array at a location. Raises `DataError` if the file is not on this machine, or too short."""
    try:
        array = np.memmap(file, dtype=dtype, mode="c", offset=offset, shape=shape)
    except (OSError, ValueError) as error:
        cure = "every machine must have it at this place, as on a file system that all of them share"
        raise DataError(f"{file} can't be mapped on {socket.gethostname()} ({one_line(error)}): {cure}") from error
    tensor = torch.from_numpy(array).as_subclass(MappedTensor)
    tensor.location = file, dtype, offset, shape
    return tensor


def location_of(array: NDArray[Any]) -> ArrayLocation | None:
    """Where an array that NumPy has mapped lies, or None if its numbers are not those of a file, one after another.

    The numbers of an array in the mode "c" may have been changed in memory alone.
    """
    if not isinstance(array, np.memmap) or array.mode == "c":
        return None
    if not array.flags.c_contiguous or array.size == 0:
        return None
    if array.filename is None or not Path(array.filename).exists():
        return None
    # A part of an array has the offset of the whole array, which is the last of its bases that is mapped.
    whole = array
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    offset = whole.offset + array.ctypes.data - whole.ctypes.data
    return Path(array.filename).resolve(), array.dtype.str, offset, array.shape
