"""A process that trains: its device, threads, signals and memory, and errors on the way to another process."""

from __future__ import annotations

import ctypes
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..settings.errors import SettingError, check, one_line, shortened
from ..system.subprocesses import STOPS


def pick_device(name: str) -> torch.device:
    """The device with this name; `"auto"` is the first available of CUDA, MPS and the CPU.

    Raises `SettingError` if the device is not available.
    """
    if name != "auto":
        try:
            device = torch.zeros((), device=name).device
        except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
            message = f"not available here ({shortened(one_line(error))})"
            raise SettingError("", "device", name, message) from None
        check(device.type != "meta", "device", name, "holds no numbers")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """PyTorch with `count` threads (None: unchanged); at the end the former number is restored."""
    before = torch.get_num_threads()
    if count is None or before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
"""Options of glibc's `mallopt`: how much free memory is returned, and which blocks are mapped one by one."""


@contextmanager
def signals_wait() -> Iterator[None]:
    """Signals that ask to stop wait, here and in the processes that start; no signal is lost."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory: otherwise every step returns it to the system and must fetch it again."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    huge = 2**31 - 1
    mallopt(M_TRIM_THRESHOLD, huge)
    mallopt(M_MMAP_THRESHOLD, huge)


def return_freed_memory() -> None:
    """Ask glibc to return freed memory to the system, also what `keep_freed_memory` has kept."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return
    trim(0)


def own_memory(process: int | None) -> int:
    """The memory of a process in bytes, without what it shares with others; 0 if the system does not tell it."""
    file = Path(f"/proc/{process}/smaps_rollup")
    if not file.exists():
        return 0
    return sum(int(line.split()[1]) * 1024 for line in file.read_text().splitlines() if line.startswith("Private_"))


def sendable(error: Exception) -> Exception:
    """The exception itself if it survives the way to another process, else one with its text and its notes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # its class depends on the exception
        plain = RuntimeError(f"{type(error).__name__}: {one_line(error)}")
        for note in getattr(error, "__notes__", []):
            plain.add_note(note)
        return plain
    return error
