"""When two folders are equal: byte for byte, but for what tells the time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .frame import Finding

TIMES = {"seconds", "training_seconds", "samples_per_second", "peak_memory_bytes", "lineage", "checksum"}
"""Keys of JSON files that may differ between equal runs. A lineage holds random names; a checksum is of all keys."""
LEFT_OUT = re.compile(r"(^|/)(lock|engine\.json|logs/.*|.*\.tmp\.lock|\.lock)$")
"""Files that may differ: who held a lock, an engine that is measured, and the output of a sweep's processes."""


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder that counts, by its place."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = {str(path.relative_to(folder)): path for path in files}
    return {name: _timeless(path) for name, path in names.items() if not LEFT_OUT.search(name)}


def _timeless(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".pdf":
        return re.sub(rb"/CreationDate \(.*?\)", b"", content)
    if path.name in ("summary.json", "state.json"):
        with suppress(ValueError, RecursionError):  # a damaged file is compared as it is
            return json.dumps(_without_times(json.loads(content)), sort_keys=True).encode()
    return content


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def different(there: dict[str, bytes], here: dict[str, bytes]) -> Iterable[Finding]:
    """The findings of a folder that should hold what another one does."""
    wrong = [f"{name} is missing" for name in there.keys() - here.keys()]
    wrong += [f"{name} differs" for name in there.keys() & here.keys() if there[name] != here[name]]
    left = here.keys() - there.keys()
    if wrong:
        yield Finding("wrong", f"unlike an undisturbed run: {', '.join(sorted(wrong))}")
    if left:
        yield Finding("leftover", f"left behind: {', '.join(sorted(left))}")
