"""Labelled images in the Hugging Face form, read from a folder or the hub and decoded into tensors."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..checks import check
from .cache import Content
from .errors import library, one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL import Image

Splits = dict[str, list[Path]]
EXTRA = "fedsash[data]"
MODES = {1: "L", 3: "RGB"}


def find(path: str, wanted: list[str]) -> Splits:
    """The files of each wanted split that is there: of a local folder, or of a data set on the hub."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return _local(folder, wanted)
    is_path = path.startswith((".", "~")) or folder.is_absolute() or path.count("/") > 1
    check(not is_path, "Images.path", path, "there is no such folder")
    return _hub(path, wanted)


def _local(folder: Path, wanted: list[str]) -> Splits:
    """`train.parquet`, or the hub's `train-00000-of-00002.parquet` and so on, anywhere below the folder."""
    files = sorted(folder.rglob("*.parquet"))
    check(len(files) > 0, "Images.path", str(folder), "this folder holds no .parquet file")
    splits = {split: [file for file in files if file.stem.split("-")[0] == split] for split in wanted}
    for split, found in splits.items():
        places = sorted({str(file.parent.relative_to(folder)) for file in found})
        check(len(places) < 2, "Images.path", str(folder), f"{split} is in several folders, choose one: {places}")
    if not splits[wanted[0]]:
        names = [str(file.relative_to(folder)) for file in files]
        check(False, "Images.path", str(folder), f"must hold {wanted[0]}.parquet; there is {_some(names)}")
    return {split: found for split, found in splits.items() if found}


def _hub(name: str, wanted: list[str]) -> Splits:
    """The Arrow files that `datasets` keeps of a data set on the hub, fetched if need be."""
    with library("datasets", EXTRA):
        import datasets
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # network, hub, missing data set, damaged files: it raises all kinds
        raise ValueError(
            f"Images.path = {name!r}: is no folder here, and the hub did not give it ({one_line(error)}). Without a "
            f"network, fetch it elsewhere (hf download {name} --repo-type dataset --local-dir FOLDER) and set path to "
            "that folder"
        ) from error
    check(wanted[0] in found, "Images.path", name, f"has no split {wanted[0]!r}, only {_some(list(found))}")
    return {split: [Path(part["filename"]) for part in found[split].cache_files] for split in wanted if split in found}


def columns(splits: Splits) -> list[str]:
    """The names of the columns of the first split."""
    with library("pyarrow", EXTRA):
        import pyarrow.parquet as pq
    file = next(iter(splits.values()))[0]
    with _readable(file):
        return list(pq.read_schema(file).names if file.suffix == ".parquet" else _stream(file).schema.names)


def _read(file: Path, names: list[str]) -> pa.Table:
    import pyarrow.parquet as pq

    with _readable(file):
        if file.suffix == ".parquet":
            return pq.read_table(file, columns=names)
        return _stream(file).read_all().select(names)


def _stream(file: Path) -> pa.RecordBatchStreamReader:
    """A file that `datasets` wrote; it is mapped, so nothing is read before it is needed."""
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(file)))


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{file} can't be read: {one_line(error)}") from error


def decode(splits: Splits, image: str, label: str, domain: str | None, channels: int | None) -> Content:
    """All splits as tensors `split.x` (uint8 NHWC), `split.y`, `split.domain`, and the names of labels and domains."""
    import pyarrow as pa

    names = [name for name in (image, label, domain) if name is not None]
    tables = {split: pa.concat_tables(_read(file, names) for file in files) for split, files in splits.items()}
    features = _features(next(iter(tables.values())))
    arrays: dict[str, NDArray[Any]] = {}
    info: dict[str, Any] = {}
    for key, column in (("y", label), ("domain", domain)):
        if column is not None:
            values = {split: table[column] for split, table in tables.items()}
            numbers, info[key] = _numbered(column, values, features.get(column, {}).get("names"))
            arrays |= {f"{split}.{key}": codes for split, codes in numbers.items()}
    with _progress(sum(len(table) for table in tables.values())) as advance:
        for split, table in tables.items():
            arrays[f"{split}.x"] = _images(table[image], f"column {image!r} of {split}", channels, advance)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, info


def _features(table: pa.Table) -> dict[str, Any]:
    """What the table's metadata say of its columns."""
    metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    return dict(metadata.get("info", {}).get("features", {}))


def _numbered(
    column: str, values: dict[str, pa.ChunkedArray], names: list[str] | None
) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """Class labels as they are; any other values (words, numbers) by their place in the sorted list of them all."""
    for split, array in values.items():
        check(array.null_count == 0, f"column {column!r} of {split}", None, "has missing values")
    plain = {split: array.to_numpy() for split, array in values.items()}
    if names is None:
        known = np.unique(np.concatenate(list(plain.values())))
        names = [str(value) for value in known]
        plain = {split: np.searchsorted(known, array) for split, array in plain.items()}
    return {split: array.astype(np.int64) for split, array in plain.items()}, names


def _images(
    column: pa.ChunkedArray, where: str, channels: int | None, advance: Callable[[int], None]
) -> NDArray[np.uint8]:
    """Decode a column of encoded images, `[n, H, W, channels]`; the first image sets size and channels for all."""
    encoded = _encoded(column, where)
    first = _open(encoded[0], f"{where}, row 0")
    mode = first.mode if channels is None else MODES[channels]
    check(mode in MODES.values(), where, mode, "images must be grey (L) or RGB: set channels to 1 or 3 to convert them")
    out = np.empty((len(encoded), first.height, first.width, 1 if mode == "L" else 3), dtype=np.uint8)

    def decode_part(start: int) -> None:
        stop = min(start + 256, len(encoded))
        for i in range(start, stop):
            image = _open(encoded[i], f"{where}, row {i}")
            check(image.size == first.size, f"{where}, row {i}: size", image.size, f"must be {first.size}, as in row 0")
            if image.mode != mode:
                right = f"row 0 is {mode}: set channels to 1 or 3 to convert them all"
                check(channels is not None, f"{where}, row {i}: mode", image.mode, right)
                image = image.convert(mode)
            out[i] = np.asarray(image).reshape(out.shape[1:])
        advance(stop - start)

    # Pillow frees the interpreter while it decodes, but for small images the hand-over costs more than it gains.
    threads = (os.cpu_count() or 1) if first.width * first.height >= 64 * 64 else 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(decode_part, range(0, len(encoded), 256)):
            pass
    return out


def _encoded(column: pa.ChunkedArray, where: str) -> list[bytes]:
    """The image files in a column of `{bytes, path}` or of plain bytes."""
    import pyarrow as pa

    if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        inner = column.type.field("bytes").type
        column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks], type=inner)
    full = pa.types.is_binary(column.type) and column.null_count == 0 and len(column) > 0
    check(full, where, str(column.type), "must hold the bytes of an image file in each row")
    return list(column.to_pylist())


def _open(encoded: bytes, where: str) -> Image.Image:
    with library("Pillow", EXTRA):
        from PIL import Image
    try:
        image = Image.open(io.BytesIO(encoded))
        image.load()
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where}: the image can't be decoded ({one_line(error)})") from error
    return image


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error while images are decoded; it leaves nothing behind."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("decoding images", total=total)
        yield lambda count: bar.advance(task, count)


def _some(names: list[str]) -> str:
    """The first few names, for a line of an error message."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
