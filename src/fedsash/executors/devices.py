"""The devices of this machine."""

from __future__ import annotations

import torch


def pick_device(name: str) -> torch.device:
    """The device of that name; `"auto"` is the first of CUDA, MPS and the CPU that is there."""
    if name != "auto":
        try:
            return torch.zeros((), device=name).device
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device = {name!r}: not available here ({str(error).splitlines()[0]})") from None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
