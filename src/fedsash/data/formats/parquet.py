"""The Hugging Face form: Parquet files as on the hub, or the Arrow files that `datasets` makes from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...basics.errors import DataError, SettingError, check, library, one_line
from .pixels import EXTRA
from .splits import Files, ImageSplit, ImageSplits, some, spellings

if TYPE_CHECKING:
    import pyarrow as pa

USUAL = {"image": ("image", "img"), "y": ("label",), "domain": ("domain",), "user": (), "coarse": ()}
"""Default names of the columns. Images and labels are required."""
OPTIONS = {"image": "image", "y": "label", "domain": "domain", "user": "user", "coarse": "coarse"}


def matches(folder: Path) -> bool:
    """Whether there is a file `*.parquet` anywhere below the folder."""
    return any(folder.rglob("*.parquet"))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """`train.parquet`, or the hub's `train-00000-of-00002.parquet` and so on, anywhere below the folder."""
    present = sorted(folder.rglob("*.parquet"))
    found = {split: [file for file in present if file.stem.split("-")[0] in spellings(split)] for split in splits}
    for split, its in found.items():
        places = sorted({str(file.parent.relative_to(folder)) for file in its})
        check(len(places) < 2, "path", str(folder), f"{split} is in several folders; choose one of {places}")
    names = [str(file.relative_to(folder)) for file in present]
    check(bool(found[splits[0]]), "path", str(folder), f"must hold {splits[0]}.parquet; there is {some(names)}")
    return {split: its for split, its in found.items() if its}


def hub(name: str, splits: Sequence[str]) -> Files:
    """The Arrow files that `datasets` keeps of a data set on the hub. They are fetched if they are missing."""
    with library("datasets", "these data", EXTRA):
        import datasets
    try:
        found = datasets.load_dataset(name)
    except (
        Exception
    ) as error:  # the library raises many kinds: for the network, the hub, a missing data set, damaged files
        right = (
            f"is no folder here, and the hub did not give it ({one_line(error)}). Without a network, fetch it "
            f"elsewhere (hf download {name} --repo-type dataset --local-dir FOLDER) and set path to that folder"
        )
        raise SettingError("", "path", name, right) from error
    present = {split: next((s for s in spellings(split) if s in found), None) for split in splits}
    check(present[splits[0]] is not None, "path", name, f"has no split {splits[0]!r}, only {some(list(found))}")
    return {split: [Path(part["filename"]) for part in found[s].cache_files] for split, s in present.items() if s}


def read(folder: Path, files: Files, columns: Mapping[str, str | None]) -> ImageSplits:
    """The chosen columns. The images stay encoded. The names are those of the class labels in the metadata."""
    import pyarrow as pa

    chosen = _choose(columns, present(files), folder)
    image = chosen.pop("image")
    tables = {
        split: pa.concat_tables(_read(file, list(chosen.values())) for file in its) for split, its in files.items()
    }
    features = _features(next(iter(tables.values())))
    parts = {}
    for split, table in tables.items():
        where = f"column {image!r} of {split}"
        values = {key: _values(table[column], f"column {column!r} of {split}") for key, column in chosen.items()}
        parts[split] = ImageSplit(Rows(files[split], image, where, len(table)), values, where)
    known = {key: features.get(column, {}).get("names") for key, column in chosen.items()}
    return ImageSplits(parts, {key: names for key, names in known.items() if names})


def present(files: Files) -> list[str]:
    """The names of the first split's columns."""
    with library("pyarrow", "these data", EXTRA):
        import pyarrow.parquet as pq
    file = next(iter(files.values()))[0]
    with _readable(file):
        return list(pq.read_schema(file).names if file.suffix == ".parquet" else _stream(file).schema.names)


def _choose(asked: Mapping[str, str | None], present: list[str], folder: Path) -> dict[str, str]:
    """The columns to read: those that are asked for, otherwise those with default names."""
    chosen = {}
    for key, usual in USUAL.items():
        name = asked.get(key) or next((name for name in usual if name in present), None)
        name = usual[0] if name is None and key in ("image", "y") else name
        if name is not None:
            right = f"there is no such column in {folder}, only {', '.join(present)}"
            check(name in present, OPTIONS[key], name, right)
            chosen[key] = name
    return chosen


def _read(file: Path, names: list[str]) -> pa.Table:
    import pyarrow.parquet as pq

    with _readable(file):
        if file.suffix == ".parquet":
            return pq.read_table(file, columns=names)
        return _stream(file).read_all().select(names)


def _stream(file: Path) -> pa.RecordBatchStreamReader:
    """An Arrow file of `datasets`. It is mapped into memory, so data are read only when they are used."""
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(file)))


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file} can't be read: {one_line(error)}") from error


def _features(table: pa.Table) -> dict[str, Any]:
    """The description of the columns in the table's metadata."""
    metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    return dict(metadata.get("info", {}).get("features", {}))


def _values(column: pa.ChunkedArray, where: str) -> Any:
    check(column.null_count == 0, where, None, "has missing values")
    return column.to_numpy()


class Rows(Sequence[bytes]):
    """The image files in a column of `{bytes, path}` or of plain bytes. The column is read at the first access.

    The bytes stay where Arrow has them: in mapped files, or in memory that forked processes share.
    """

    def __init__(self, files: Sequence[Path], name: str, where: str, count: int) -> None:
        self._files, self._name, self._where, self._count = files, name, where, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        return self._column[row].as_py()

    @cached_property
    def _column(self) -> pa.ChunkedArray:
        import pyarrow as pa

        column = pa.concat_tables(_read(file, [self._name]) for file in self._files)[self._name]
        if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            inner = column.type.field("bytes").type
            column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks], type=inner)
        full = pa.types.is_binary(column.type) and column.null_count == 0 and len(column) > 0
        check(full, self._where, str(column.type), "must hold the bytes of an image file in each row")
        return column
