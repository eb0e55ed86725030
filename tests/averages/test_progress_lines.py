"""Lines of progress: few, whatever is counted."""

from __future__ import annotations

import pytest

from fedsash.averages import progress
from fedsash.averages.progress import SECONDS, ProgressLines


def test_a_line_is_said_at_most_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 41 steps of half a second."""
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    said: list[str] = []
    lines = ProgressLines(said.append)
    for step in range(41):
        now = 100.0 + step / 2
        lines.show(f"{step} of 40")
    assert said == ["10 of 40", "20 of 40", "30 of 40", "40 of 40"]
    assert len(said) == 20 / SECONDS
