"""Fixtures of several files, and how Hypothesis looks for counterexamples."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fedsash", deadline=None)  # a machine may be busy
settings.load_profile("fedsash")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, in place of the user's."""
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
