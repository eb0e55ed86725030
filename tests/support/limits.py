"""Limits of the system that a test makes narrow."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def _limited(kind: int, most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


short_files = partial(_limited, resource.RLIMIT_FSIZE)
"""No file may become longer than so many bytes."""
few_files = partial(_limited, resource.RLIMIT_NOFILE)
"""At first no more than so many files may be open; a process may raise this limit."""
small_memory = partial(_limited, resource.RLIMIT_AS)
"""The process may have no more than so many bytes of address space."""
