"""Parquet files of images for tests, as the hub serves them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.forms import pixels

pa = pytest.importorskip("pyarrow", reason="fedsash[data] is not installed")
pytest.importorskip("PIL", reason="fedsash[data] is not installed")

import pyarrow.parquet as pq  # noqa: E402
from PIL import Image  # noqa: E402

__all__ = ["Image", "encoded", "pixels", "write"]

Pixels = NDArray[np.uint8]


def encoded(image: Pixels | Image.Image) -> bytes:
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image.squeeze())).save(buffer, "PNG")
    return buffer.getvalue()


def write(
    file: Path,
    images: Any,
    names: list[str] | None = None,
    image: str = "image",
    raw: bool = False,
    **columns: list[Any],
) -> None:
    """A Parquet file as the hub serves it; `names` are those of the column `label`."""
    rows = [one if isinstance(one, bytes) else encoded(one) for one in images]
    table = pa.table({image: rows if raw else [{"bytes": row, "path": None} for row in rows], **columns})
    features: dict[str, Any] = {image: {"_type": "Image"}}
    for column, values in columns.items():
        kind = "string" if isinstance(values[0], str) else "int64"
        features[column] = {"dtype": kind, "_type": "Value"}
        if names and column == "label":
            features[column] = {"names": names, "_type": "ClassLabel"}
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), file)
