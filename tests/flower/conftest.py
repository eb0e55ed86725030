"""What all tests with Flower share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fedsash.lab.pictures.picture import Picture


@pytest.fixture(autouse=True, scope="module")
def little_to_collect() -> Iterator[None]:
    """Flower collects garbage each time it reads arrays: what there is before need not be looked at again and again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run draws none: they take most of the time of a short run, and not every test looks at them."""
    monkeypatch.setattr("fedsash.lab.runs.folder.draw_timeline", lambda *given: None)
    monkeypatch.setattr(Picture, "save", lambda *given: None)
