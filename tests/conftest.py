"""Fixtures of several files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, in place of the user's."""
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
