"""Files of JSON that stand for those of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsash.system.files import table, write_table

write_json = write_table


def content_of(path: Path) -> Any:
    """The content of a table of a run, which has a checksum."""
    return table(path, sealed=True)
