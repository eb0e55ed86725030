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

Storage = Literal["auto", "device", "host", "disk"]


def rows(size: int, w: Tensor, storage: Storage, folder: Path | None = None) -> Tensor:
    """Zeros `[size, *w.shape]` of the type of `w`, for `size` tensors like `w`.

    `"device"` is the device of `w`, `"host"` the CPU's memory. `"disk"` is a file in `folder` (or in the system's
    folder for temporary files) that is mapped into memory. It has no name, so it is removed when the process ends.
    `"auto"` takes the device or the host if the rows need less than a quarter of its free memory, otherwise the disk.
    On the CPU and on disk a row needs memory or disk space only after it is first written.

    Raises `OSError` if the disk has too little free space.
    """
    size_bytes = size * w.numel() * w.element_size()
    if not size_bytes:
        return w.new_zeros(size, *w.shape)
    if storage == "auto":
        storage = _choose(size_bytes, w.device)
    if storage == "disk":
        return _mapped(size, w, folder)
    if storage == "device" and w.device.type != "cpu":
        return torch.zeros((size, *w.shape), dtype=w.dtype, device=w.device)
    # The system provides NumPy's zeros at their first use; PyTorch writes its zeros at once.
    return torch.from_numpy(np.zeros(size_bytes, dtype=np.uint8)).view(w.dtype).view(size, *w.shape)


def client_rows(value: Tensor, clients: int, folder: Path | None = None) -> Tensor:
    """The initial state of N `clients`: `value` for each, `[N, *value.shape]`, in the storage `"auto"`."""
    remembered = rows(clients, value, "auto", folder)
    return remembered.copy_(value) if bool(value.any()) else remembered  # zeros stay unwritten


def _choose(size_bytes: int, device: torch.device) -> Storage:
    if size_bytes < free(device) / 4:
        return "device"
    return "host" if device.type != "cpu" and size_bytes < free(torch.device("cpu")) / 4 else "disk"


def _mapped(size: int, w: Tensor, folder: Path | None) -> Tensor:
    size_bytes = size * w.numel() * w.element_size()
    if not size_bytes:
        return w.new_zeros(size, *w.shape)
    place = folder or Path(tempfile.gettempdir())
    place.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(place).free
    # The file is sparse: a disk that fills up later would kill the process (SIGBUS) instead of raising an error.
    if size_bytes > room:
        raise OSError(f"{size} rows like {list(w.shape)} take {size_bytes:,} bytes, but {place} has only {room:,} free")
    with tempfile.NamedTemporaryFile(dir=place, prefix="rows-") as file:
        flat = torch.from_file(file.name, shared=True, size=size * w.numel(), dtype=w.dtype)
    return flat.view(size, *w.shape)


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
    """The machine's available memory in bytes. If the system does not tell (macOS), half of its memory."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _container_limit() -> int | None:
    """The bytes that a container's memory limit (cgroup v2) leaves; None without a limit."""
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not limit.exists() or (text := limit.read_text().strip()) == "max":
        return None
    return int(text) - int(used.read_text())
