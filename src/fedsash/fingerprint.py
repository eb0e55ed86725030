"""What determines a run's numbers, as short texts that can be compared and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch


def text(value: Any) -> str:
    """A value in words: settings with all their fields, arrays by a checksum, functions by their place."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={text(getattr(value, f.name))}" for f in fields(value) if f.repr)
        return f"{type(value).__module__}.{type(value).__qualname__}({inner})"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)} {crc32(np.ascontiguousarray(value).tobytes()):08x}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {text(inner)}" for key, inner in value.items()) + "}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """The names of what differs, with both texts, for what both have."""
    return [
        f"{name} is {there[name]} there and {here[name]} here"
        for name in here
        if there.get(name, here[name]) != here[name]
    ]
