"""What to do about a lost or damaged file of a run, in words."""

from __future__ import annotations

import shlex
from pathlib import Path


def remake(folder: Path) -> str:
    """How a file that every session writes is written again."""
    if _swept(folder):
        return f"remove {folder / 'summary.json'}, and the command of its sweep writes it again"
    return f"write it again with {shlex.join(['fedsash', 'resume', str(folder)])}"


def restore(folder: Path) -> str:
    """How a run goes on whose file nothing writes again."""
    if _swept(folder):
        return f"remove {folder}, and the command of its sweep trains it again"
    return "put the right one back, or fork from a saved state"


def _swept(folder: Path) -> bool:
    """Whether a run's folder is in that of a sweep."""
    return (folder.resolve().parent.parent / "sweep.json").exists()
