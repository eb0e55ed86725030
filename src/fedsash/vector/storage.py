"""Rows of numbers, on the device, in host memory, or in a memory-mapped file."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..system import posix

Storage = Literal["auto", "device", "host", "disk"]
CGROUP = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")
"""Where the system tells the limits of a group of processes (cgroup v2), and this process's group."""


def rows(size: int, w: Tensor, storage: Storage, folder: Path | None = None, reserve: bool = False) -> Tensor:
    """Zeros `[size, *w.shape]` of the type of `w`, for `size` tensors like `w`.

    `"device"` is the device of `w`, `"host"` the CPU's memory. `"disk"` is a file in `folder` (or in the system's
    folder for temporary files) that is mapped into memory. It has no name, so it is removed when the process ends.
    `"auto"` takes the device or the host if the rows need less than a quarter of its free memory, otherwise the disk.
    On the CPU and on disk a row needs memory or disk space only after it is first written; with `reserve` the space on
    the disk is taken at once (see `mapped`).

    Raises `OSError` if the disk has too little free space.
    """
    size_bytes = size * w.numel() * w.element_size()
    if not size_bytes:
        return w.new_zeros(size, *w.shape)
    storage = chosen(size_bytes, storage, w.device)
    if storage == "disk":
        place = folder or Path(tempfile.gettempdir())
        check_room(size, w, place)
        return mapped(size, w, place, reserve)
    if storage == "device" and w.device.type != "cpu":
        return torch.zeros((size, *w.shape), dtype=w.dtype, device=w.device)
    # The system provides NumPy's zeros at their first use; PyTorch writes its zeros at once.
    return torch.from_numpy(np.zeros(size_bytes, dtype=np.uint8)).view(w.dtype).view(size, *w.shape)


def client_rows(value: Tensor, clients: int, folder: Path | None = None) -> Tensor:
    """The initial state of N `clients`: `value` for each, `[N, *value.shape]`, in the storage `"auto"`."""
    remembered = rows(clients, value, "auto", folder)
    return remembered.copy_(value) if bool(value.any()) else remembered  # zeros stay unwritten


def chosen(size_bytes: int, storage: Storage, device: torch.device) -> Storage:
    """Where so many bytes of tensors of `device` lie: in the named storage, or in what `"auto"` means for them."""
    if storage != "auto":
        return storage
    if size_bytes < free(device) / 4:
        return "device"
    return "host" if device.type != "cpu" and size_bytes < free(torch.device("cpu")) / 4 else "disk"


def check_room(size: int, w: Tensor, place: Path, already: bool = False) -> None:
    """Raise `OSError` if `size` tensors like `w` do not fit on the disk of the folder `place`.

    With `already`, the files in `place` count as free: they may be of these tensors.
    """
    size_bytes = size * w.numel() * w.element_size()
    place.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(place).free
    if size_bytes > room and already:
        files = (file.stat() for file in place.rglob("*") if file.is_file())
        room += sum({(file.st_dev, file.st_ino): file.st_size for file in files}.values())  # saved states share files
    if size_bytes > room:
        many = f"{size:,} vectors of {w.numel():,} numbers"
        raise OSError(f"{many} take {size_bytes:,} bytes on the disk, but {place} has only {room:,} free")


def mapped(size: int, w: Tensor, place: Path, reserve: bool = False) -> Tensor:
    """Zeros `[size, *w.shape]` in a file without a name in the folder `place`, which is mapped into memory.

    The file is sparse: a disk that fills up later kills the process (SIGBUS) where it can't raise an error. With
    `reserve` all of it is taken at once, where the system can do so; this raises `OSError`, which names the folder, if
    the disk is full.
    """
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place, prefix="rows-") as file:
        if reserve and hasattr(os, "posix_fallocate"):  # not on macOS
            _take(file.fileno(), size * w.numel() * w.element_size(), place)
        flat = torch.from_file(file.name, shared=True, size=size * w.numel(), dtype=w.dtype)
    return flat.view(size, *w.shape)


def _take(handle: int, size_bytes: int, place: Path) -> None:
    try:
        os.posix_fallocate(handle, 0, size_bytes)
    except OSError as error:
        why = f"{size_bytes:,} bytes can't be kept on the disk: {error.strerror}"
        raise OSError(error.errno, why, str(place)) from error


def free(device: torch.device) -> int:
    """The free memory of `device` for new tensors, in bytes."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    limits = [_available(), _container_limit()]
    return min(limit for limit in limits if limit is not None)


def _available() -> int:
    """The machine's available memory in bytes. If the system does not tell (macOS), half of all."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return posix.half_of_memory()


def _container_limit() -> int | None:
    """The bytes that the memory limits (cgroup v2) of the process's groups leave; None without a limit."""
    lines = GROUPS.read_text().splitlines() if GROUPS.exists() else []
    own = CGROUP / next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    left = (_left(group) for group in (own, *own.parents) if group.is_relative_to(CGROUP))
    return min((room for room in left if room is not None), default=None)


def _left(group: Path) -> int | None:
    """The bytes that the limit of a group leaves. The content of files, which the system drops first, is not in use."""
    files = [group / f"memory.{name}" for name in ("max", "current", "stat")]
    if not all(file.exists() for file in files):
        return None
    limit, used, stat = (file.read_text() for file in files)
    cached = next((int(line.split()[1]) for line in stat.splitlines() if line.startswith("inactive_file ")), 0)
    return None if limit.strip() == "max" else int(limit) - int(used) + cached
