"""The checksum of a JSON file. Commands that only read such files must not wait for PyTorch, so it has its own file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any


def json_checksum(data: Mapping[str, Any]) -> int:
    """The checksum that stands in a JSON file, of its other content. All formats compute it in the same way."""
    return zlib.crc32(json.dumps(data).encode())
