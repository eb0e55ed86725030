"""The devices of this machine."""

from __future__ import annotations

import torch

from ..basics.errors import SettingError


def pick_device(name: str) -> torch.device:
    """The device of that name; `"auto"` is the first of CUDA, MPS and the CPU that is there."""
    if name != "auto":
        try:
            return torch.zeros((), device=name).device
        except (RuntimeError, AssertionError) as error:
            right = f"not available here ({str(error).splitlines()[0]})"
            raise SettingError("", "device", name, right) from None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
