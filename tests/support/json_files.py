"""Files of JSON that stand for those of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsash.basics.files import json_of, replace_file


def write_json(path: Path, data: Any) -> None:
    """Write `data` as strict JSON, completely or not at all."""
    replace_file(path, json_of(data))
