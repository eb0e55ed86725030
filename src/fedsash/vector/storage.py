"""Rows of numbers, on the device, in host memory, or in a memory-mapped file."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..system import posix
from ..system.host import host, make_folders, nameless

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
        folder = folder or Path(tempfile.gettempdir())
        check_room(size, w, folder)
        return mapped(size, w, folder, reserve)
    if storage == "device" and w.device.type != "cpu":
        return torch.zeros((size, *w.shape), dtype=w.dtype, device=w.device)
    # The system provides NumPy's zeros at their first use; PyTorch writes its zeros at once.
    return torch.from_numpy(np.zeros(size_bytes, dtype=np.uint8)).view(w.dtype).view(size, *w.shape)


def client_rows(value: Tensor, clients: int, folder: Path | None = None) -> Tensor:
    """The initial state of N `clients`: `value` for each, `[N, *value.shape]`, in the storage `"auto"`."""
    state = rows(clients, value, "auto", folder)
    if bool(value.any()):  # zeros stay unwritten, so they take no memory
        state.copy_(value)
    return state


def chosen(size_bytes: int, storage: Storage, device: torch.device) -> Storage:
    """Where so many bytes of tensors of `device` lie: in the named storage, or in what `"auto"` means for them."""
    if storage != "auto":
        return storage
    if size_bytes < free(device) / 4:
        return "device"
    if device.type != "cpu" and size_bytes < free(torch.device("cpu")) / 4:
        return "host"
    return "disk"


def check_room(size: int, w: Tensor, folder: Path, already: bool = False) -> None:
    """Raise `OSError` if `size` tensors like `w` do not fit on the disk of `folder`.

    With `already`, the files in `folder` count as free: they may be of these tensors.
    """
    size_bytes = size * w.numel() * w.element_size()
    make_folders(folder)
    room = shutil.disk_usage(folder).free
    if size_bytes > room and already:
        room += _bytes_of_files(folder)
    if size_bytes > room:
        vectors = f"{size:,} vectors of {w.numel():,} numbers"
        raise OSError(f"{vectors} take {size_bytes:,} bytes on the disk, but {folder} has only {room:,} free")


def _bytes_of_files(folder: Path) -> int:
    """The bytes of all files in a folder. A file with several names counts once: saved states share files."""
    sizes = {}
    for path in folder.rglob("*"):
        if path.is_file():
            file = path.stat()
            sizes[file.st_dev, file.st_ino] = file.st_size
    return sum(sizes.values())


def mapped(size: int, w: Tensor, folder: Path, reserve: bool = False) -> Tensor:
    """Zeros `[size, *w.shape]` in a file without a name in `folder`, which is mapped into memory.

    The file is sparse: a disk that fills up later kills the process (SIGBUS) where it can't raise an error. With
    `reserve` all of it is taken at once, where the system can do so; this raises `OSError`, which names the folder, if
    the disk is full.
    """
    size_bytes = size * w.numel() * w.element_size()
    handle = nameless(folder)
    try:
        if reserve:
            _reserve(handle, size_bytes, folder)
        host.disk.truncate(handle, size_bytes)
        content = mmap.mmap(handle, size_bytes)
    finally:
        os.close(handle)
    return torch.frombuffer(content, dtype=w.dtype).view(size, *w.shape)


def _reserve(handle: int, size_bytes: int, folder: Path) -> None:
    """Take the space of an open file on the disk. Raises `OSError`, which names the folder, if it is full."""
    try:
        host.disk.reserve(handle, size_bytes)
    except OSError as error:
        reason = f"{size_bytes:,} bytes can't be kept on the disk: {error.strerror}"
        raise OSError(error.errno, reason, str(folder)) from error


def free(device: torch.device) -> int:
    """The free memory of `device` for new tensors, in bytes."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    container = _container_limit()
    if container is None:
        return _available()
    return min(_available(), container)


def _available() -> int:
    """The machine's available memory in bytes. If the system does not tell (macOS), half of all."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return posix.half_of_memory()


def _container_limit() -> int | None:
    """The bytes that the memory limits (cgroup v2) of the process's groups leave; None without a limit."""
    group = _group_of_process()
    limits = []
    for folder in (group, *group.parents):
        if folder.is_relative_to(CGROUP):
            limit = _left_by_limit(folder)
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _group_of_process() -> Path:
    """The folder of this process's group; that of all groups where the system names none."""
    if GROUPS.exists():
        for line in GROUPS.read_text().splitlines():
            if line.startswith("0::/"):
                return CGROUP / line.removeprefix("0::/")
    return CGROUP


def _left_by_limit(group: Path) -> int | None:
    """The bytes that the limit of a group leaves. The content of files, which the system drops first, is not in use."""
    limit_file = group / "memory.max"
    used_file = group / "memory.current"
    stat_file = group / "memory.stat"
    if not (limit_file.exists() and used_file.exists() and stat_file.exists()):
        return None
    limit = limit_file.read_text().strip()
    if limit == "max":
        return None
    cached = 0
    for line in stat_file.read_text().splitlines():
        if line.startswith("inactive_file "):
            cached = int(line.split()[1])
    return int(limit) - int(used_file.read_text()) + cached
