"""The devices of this machine, and PyTorch's number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..settings.errors import SettingError, check, one_line, shortened


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
