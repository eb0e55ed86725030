"""Where sweeps of tests train, what is not drawn, and what is not done again for each: fixtures of two folders."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import SimpleNamespace

import pytest

packed = cache(gzip.compress)


@pytest.fixture(autouse=True, scope="module")
def sweeps_in_threads() -> Iterator[None]:
    """No Python is started for a sweep, unless a test is `in_process()`."""
    from support.in_thread import in_thread

    with in_thread():
        yield


@pytest.fixture(autouse=True, scope="module")
def plotly_is_packed_once() -> Iterator[None]:
    """Packing it takes most of the time of a page."""
    module = import_module("fedsash.lab.report.page.document")  # the package has a function of this name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "gzip", SimpleNamespace(compress=packed))
        yield


@pytest.fixture(autouse=True)
def nothing_is_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that draw write empty files, unless a test looks at them: `mark.pictures`."""
    if not request.node.get_closest_marker("pictures"):
        monkeypatch.setattr("fedsash.runs.pictures.paper.drawn", lambda picture, form: b"")
