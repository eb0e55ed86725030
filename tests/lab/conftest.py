"""Where the sweeps of these tests train."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def sweeps_in_threads() -> Iterator[None]:
    """No Python is started for a sweep, unless a test asks for a `real_process`."""
    from support.in_thread import in_thread

    with in_thread():
        yield


@pytest.fixture
def real_process(sweeps_in_threads: None) -> Iterator[None]:
    """The sweeps of a test train in processes of their own."""
    from support.in_thread import in_process

    with in_process():
        yield
