"""The Hugging Face format: Parquet files as on the hub, or the Arrow files that `datasets` makes from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....settings.errors import SettingError, check, library, one_line, some
from ....system.paths import plain_file
from ...class_names import same_names
from .memory import check_room, check_unpacked, reading
from .pixels import EXTRA
from .splits import Files, ImageSplit, ImageSplits, files_of, name_of, visible_files

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

USUAL = {"image": ("image", "img"), "y": ("label",), "domain": ("domain",), "user": (), "coarse": ()}
"""The names of the columns by default."""
REQUIRED = ("image", "y")
"""The columns without which nothing can be learned."""
TIMEOUT = 10.0
"""How long the hub is waited for, in seconds."""
ROWS = 64
"""How many rows are read at a time, at most."""
OPTIONS = {"image": "image", "y": "label", "domain": "domain", "user": "user", "coarse": "coarse"}
"""The options of `Images` that name the columns."""


def matches(folder: Path) -> bool:
    """Whether there is a file `*.parquet` anywhere below the folder."""
    return any(file.suffix.lower() == ".parquet" for file in visible_files(folder))


def files(folder: Path, splits: Sequence[str]) -> Files:
    """`train.parquet`, or the hub's `train-00000-of-00002.parquet` and so on, anywhere below the folder."""
    present = sorted(file for file in visible_files(folder) if file.suffix.lower() == ".parquet")
    split_files = {split: files_of(split, present, folder) for split in splits}
    train = splits[0]
    names = [str(file.relative_to(folder)) for file in present]
    check(len(split_files[train]) > 0, "path", str(folder), f"must hold {train}.parquet; there is {some(names)}")
    return {split: files for split, files in split_files.items() if files}


def check_hub(name: str) -> None:
    """Raise `SettingError` at once if the hub has no such data set, or if it can't be reached and nothing is kept here.

    One question is asked. `datasets` itself would try again and again for half a minute.
    """
    with library("datasets", "these data", EXTRA):
        import datasets
        from huggingface_hub import HfApi, constants
        from huggingface_hub.errors import RepositoryNotFoundError
    try:
        HfApi().dataset_info(name, timeout=TIMEOUT)
    except RepositoryNotFoundError as error:
        raise SettingError("", "path", name, "is no folder here, and the hub has no such public data set") from error
    except Exception as error:  # the network, the hub, or its settings: what was fetched before may still be used
        fetched = Path(constants.HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}"
        prepared = Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___")
        if not (fetched.is_dir() or prepared.is_dir()):
            raise _not_given(name, error) from error


def _not_given(name: str, error: Exception) -> SettingError:
    cure = (
        f"is no folder here, and the hub did not give it ({one_line(error)}). Without a network, fetch it "
        f"elsewhere (hf download {name} --repo-type dataset --local-dir FOLDER) and set path to that folder"
    )
    return SettingError("", "path", name, cure)


def hub(name: str, splits: Sequence[str]) -> Files:
    """The Arrow files that `datasets` keeps of a data set on the hub. They are fetched if they are missing."""
    with library("datasets", "these data", EXTRA):
        import datasets
    try:
        dataset = datasets.load_dataset(name)
    # The library raises many kinds: for the network, the hub, a missing data set, damaged files.
    except Exception as error:
        raise _not_given(name, error) from error
    split_files = {}
    for split in splits:
        stored = name_of(split, dataset)
        if stored is not None:
            split_files[split] = [Path(part["filename"]) for part in dataset[stored].cache_files]
    requirement = f"has no split {splits[0]!r}, only {some(list(dataset))}"
    check(splits[0] in split_files, "path", name, requirement)
    return split_files


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """The chosen columns. The images stay encoded. The names are those of the class labels in the metadata."""
    column_of = _choose(columns, present(files), folder)
    image = column_of.pop("image")
    tables = {}
    class_names_of_splits = []
    for split, split_files in files.items():
        tables[split] = rows(split_files, list(column_of.values()), unpacked)
        class_names_of_splits.append((str(split_files[0]), class_names(tables[split])))
    names_by_column = same_names(class_names_of_splits)
    parts = {}
    for split, table in tables.items():
        where = f"column {image!r} of {split}"
        images = Rows(files[split], image, where, len(table), unpacked)
        values = {}
        for key, column in column_of.items():
            values[key] = _values(table[column], f"column {column!r} of {split}")
        parts[split] = ImageSplit(images, values, where)
    names = {key: names_by_column[column] for key, column in column_of.items() if column in names_by_column}
    return ImageSplits(parts, names)


def present(files: Files) -> list[str]:
    """The names of the first split's columns."""
    with library("pyarrow", "these data", EXTRA):
        import pyarrow.parquet as pq
    file = next(iter(files.values()))[0]
    with reading(file):
        if file.suffix.lower() == ".parquet":
            return list(pq.read_schema(plain_file(file)).names)
        return list(_stream(file).schema.names)


def _choose(columns: Mapping[str, str | None], present: list[str], folder: Path) -> dict[str, str]:
    """The columns to read: those that `columns` names, otherwise those with usual names."""
    chosen = {}
    for key, usual in USUAL.items():
        name = columns.get(key) or next((name for name in usual if name in present), None)
        if name is None and key in REQUIRED:
            name = usual[0]  # which is refused below
        if name is not None:
            requirement = f"there is no such column in {folder}, only {', '.join(present)}"
            check(name in present, OPTIONS[key], name, requirement)
            chosen[key] = name
    return chosen


def rows(files: Sequence[Path], names: list[str], unpacked: float) -> pa.Table:
    """The columns `names` of these files, which together hold one split.

    Raises `DataError` if a file can't be read, or if two call their classes differently.
    """
    import pyarrow as pa

    tables = []
    class_names_of_files = []
    for file in files:
        with reading(file):
            table = _read(file, names, unpacked)
            tables.append(table)
            class_names_of_files.append((str(file), class_names(table)))
    same_names(class_names_of_files)
    with reading(files[-1]):
        return pa.concat_tables(tables)


def _read(file: Path, names: list[str], unpacked: float) -> pa.Table:
    """The columns of a file, read a few rows at a time, since a Parquet file may hold a value once for many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.suffix.lower() != ".parquet":
        return _stream(file).read_all().select(names)
    with pq.ParquetFile(plain_file(file)) as opened:
        stored = opened.schema_arrow
        schema = pa.schema([stored.field(name) for name in names], stored.metadata)
        packed = file.stat().st_size
        sizes = _chunks(opened.metadata, names)
        check_unpacked(sum(sizes), packed, unpacked, str(file))
        check_room(sum(sizes), str(file))
        # No value is longer than its chunk, so this many rows take at most `unpacked` GB.
        count = int(unpacked * 1e9) // max(sizes, default=1)
        count = max(1, min(count, ROWS))
        taken = 0
        batches = []
        for batch in opened.iter_batches(count, columns=names):
            taken += batch.nbytes
            check_unpacked(taken, packed, unpacked, str(file))
            batches.append(batch)
        return pa.Table.from_batches(batches, schema)


def _stream(file: Path) -> pa.RecordBatchStreamReader:
    """An Arrow file of `datasets`. It is mapped into memory, so data are read only when they are used."""
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(file)))


def _chunks(metadata: pq.FileMetaData, names: list[str]) -> list[int]:
    """The unpacked bytes of all chunks of these columns, as the footer has them."""
    sizes = []
    for k in range(metadata.num_row_groups):
        group = metadata.row_group(k)
        for i in range(group.num_columns):
            chunk = group.column(i)
            if chunk.path_in_schema.split(".")[0] in names:
                sizes.append(chunk.total_uncompressed_size)
    return sizes


def class_names(table: pa.Table) -> dict[str, list[str]]:
    """The names of the classes by column, from the metadata that `datasets` writes."""
    metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    features = dict(metadata.get("info", {}).get("features", {}))
    names_by_column = {}
    for column in table.column_names:
        names = features.get(column, {}).get("names")
        if names:
            names_by_column[column] = [str(name) for name in names]
    return names_by_column


def _values(column: pa.ChunkedArray, where: str) -> Any:
    """The whole numbers or texts of a column, as an array. Raises `SettingError` for others."""
    import pyarrow as pa

    check(column.null_count == 0, where, None, "has missing values")
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    check(is_text or is_whole, where, str(column.type), "must hold whole numbers or words")
    with reading(where):
        return column.to_numpy()


class Rows(Sequence[bytes]):
    """The image files in a column of `{bytes, path}` or of plain bytes. The column is read at the first access.

    The bytes stay where Arrow has them: in mapped files, or in memory that forked processes share.
    """

    def __init__(self, files: Sequence[Path], name: str, where: str, count: int, unpacked: float) -> None:
        self._files = files
        self._name = name
        self._where = where
        self._count = count
        self._unpacked = unpacked

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        return self._column[row].as_py()

    @cached_property
    def _column(self) -> pa.ChunkedArray:
        import pyarrow as pa

        column = rows(self._files, [self._name], self._unpacked)[self._name]
        if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            inner = column.type.field("bytes").type
            column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks], type=inner)
        full = pa.types.is_binary(column.type) and column.null_count == 0 and len(column) > 0
        check(full, self._where, str(column.type), "must hold the bytes of an image file in each row")
        return column
