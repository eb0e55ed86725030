"""Collecting without Python's search for reference cycles, as a plugin of pytest.

Modules, functions and the trees that pytest makes of the tests' source are millions of objects that stay, and the
search would look at all of them again and again, which takes as long as everything else. What is there when all tests
are collected is never searched again either.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
