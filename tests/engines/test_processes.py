"""The memory of a process that starts others."""

from __future__ import annotations

import ctypes
import os

import pytest

from fedsash.engines.processes import own_memory, return_freed_memory

BLOCKS, SIZE = 640, 100_000


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc")
def test_freed_memory_below_what_is_still_used_goes_back_to_the_system() -> None:
    blocks = [b"\1" * SIZE for _ in range(BLOCKS)]
    last = blocks[-1]  # glibc returns nothing below it by itself
    full = own_memory(os.getpid())
    del blocks
    return_freed_memory()
    assert own_memory(os.getpid()) < full - 0.8 * BLOCKS * SIZE
    assert len(last) == SIZE
