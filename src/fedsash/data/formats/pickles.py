"""The form of CIFAR-10 and CIFAR-100 (Krizhevsky 2009), and of Digit-Five in FedBN's files: Python pickles."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...basics.errors import DataError, check, one_line
from .splits import Files, ImageSplit, ImageSplits, Pixels, home

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
SIDE = 32
NUMBERS = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")


def matches(folder: Path) -> bool:
    """Whether `data_batch_1`, `meta` or `train_part0.pkl` is in the folder or up to two levels below it."""
    return _home(folder) is not None


def _home(folder: Path) -> Path | None:
    return home(folder, "data_batch_1", "train_part0.pkl") or home(folder, "meta")


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The five batches and the test batch, `train` and `test`, or FedBN's parts and its `test.pkl`."""
    place = _home(folder) or folder
    if (place / "data_batch_1").exists():
        found = {split: [place / name for name in names] for split, names in BATCHES.items()}
    elif (place / "train_part0.pkl").exists():
        parts = sorted(place.glob("train_part*.pkl"), key=lambda file: (len(file.name), file.name))
        beside = place / "test.pkl"
        found = {"train": parts, "test": [beside if beside.exists() else place.parent / "test.pkl"]}
    else:
        found = {split: [place / split] for split in ("train", "test")}
    for file in [file for files in found.values() for file in files]:
        check(file.is_file(), "path", str(place), f"{file.name} is missing")
    return {split: files for split, files in found.items() if split in splits}


def read(folder: Path, files: Files, columns: Mapping[str, str | None]) -> ImageSplits:
    """Images `[n, H, W, channels]`, labels and, for CIFAR-100, coarse labels. The names are those in `meta`."""
    parts = {}
    for split, its in files.items():
        batches = [_batch(file) for file in its]
        merged = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
        parts[split] = ImageSplit(merged.pop("x"), merged, str(its[0]))
    return ImageSplits(parts, _names(next(iter(files.values()))[0].parent))


def _batch(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of one file: `x`, `y` and, for CIFAR-100, `coarse`."""
    content = load(file)
    if isinstance(content, tuple):
        right = "must be a pair of images and labels, as in FedBN's files"
        check(len(content) == 2 and all(isinstance(a, np.ndarray) for a in content), str(file), len(content), right)
        x, y = content
        found = {"x": x[..., None] if x.ndim == 3 else x, "y": y.reshape(-1)}
    else:
        table = _words(content, file)
        labels = next((name for name in ("fine_labels", "labels") if name in table), None)
        right = "must have the keys data and labels, or data, fine_labels and coarse_labels"
        check("data" in table and labels is not None, f"{file}: keys", sorted(map(str, table)), right)
        found = {"x": _image(table["data"], file), "y": np.array(table[str(labels)])}
        if "coarse_labels" in table:
            found["coarse"] = np.array(table["coarse_labels"])
    for key, values in found.items():
        right = "must be whole numbers" if key != "x" else "must be unsigned bytes"
        fits = values.dtype == np.uint8 and values.ndim == 4 if key == "x" else np.issubdtype(values.dtype, np.integer)
        check(fits, f"{file}: {key}", f"{values.dtype} {list(values.shape)}", right)
        right = f"must be {len(found['x'])}, the number of images"
        check(len(values) == len(found["x"]), f"{file}: number of labels", len(values), right)
    return found


def _words(content: Any, file: Path) -> dict[str, Any]:
    """A dictionary with strings as keys. In pickles of Python 2 they are bytes."""
    check(isinstance(content, dict), str(file), type(content).__name__, "must be a dictionary")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}


def _image(data: Any, file: Path) -> Pixels:
    """Images `[n, 32, 32, 3]` from rows of 1,024 red, 1,024 green and 1,024 blue values."""
    shape = getattr(data, "shape", None)
    fits = isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == 3 * SIDE * SIDE
    check(fits, f"{file}: data", shape, f"must be an array of {3 * SIDE * SIDE} numbers for each image")
    return np.ascontiguousarray(data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _names(place: Path) -> dict[str, list[str]]:
    """The names of the labels in CIFAR-10's `batches.meta` or CIFAR-100's `meta`; empty without such a file."""
    file = next((place / name for name in ("batches.meta", "meta") if (place / name).is_file()), None)
    table = {} if file is None else _words(load(file), file)
    kinds = {"label_names": "y", "fine_label_names": "y", "coarse_label_names": "coarse"}
    names = {key: table[kind] for kind, key in kinds.items() if kind in table}
    return {key: [n.decode("latin1") if isinstance(n, bytes) else str(n) for n in its] for key, its in names.items()}


def load(file: Path) -> Any:
    """The pickled content of a file: arrays of numbers, dictionaries, lists, tuples, bytes, strings and numbers.

    A pickle can call any function by its name. So only a few names are allowed; another one raises `DataError` before
    anything is called. For NumPy's arrays and types the pickle gets `_Array` and `_Kind` of this module, since a
    manipulated state can make NumPy's own classes read memory outside of an array.
    """
    try:
        with file.open("rb") as opened:
            content = _Unpickler(opened, encoding="bytes").load()
    except _Refused as error:
        raise DataError(f"{file}: asks for {error}: must hold arrays, lists, strings and numbers only") from None
    except Exception as error:  # a damaged pickle can make its reader raise anything
        raise DataError(f"{file} can't be read: {one_line(error)}") from error
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    return tuple(map(_plain, content)) if isinstance(content, tuple) else content


class _Refused(Exception):
    """A pickle asked for a function that is not allowed; the message is its name."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]


class _Kind:
    """The type of an array's numbers, such as `u1`. Its state begins with a version and the byte order."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name, self.order = (name.decode("ascii") if isinstance(name, bytes) else name), "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        self.order = ">" if order == ">" else "<"

    @property
    def dtype(self) -> np.dtype[Any]:
        check(self.name in NUMBERS, "type of numbers", self.name, f"must be one of {', '.join(NUMBERS)}")
        return np.dtype(f"{self.order}{self.name}")


class _Array:
    """An array. Its state is a version, the shape, the type, whether the order is by columns, and the bytes."""

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, kind, columns_first, raw = state
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if columns_first else "C")


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Array) else value


def _latin1(text: str, encoding: str) -> bytes:
    """Bytes in the form in which Python 3 writes them for Python 2."""
    check(encoding in ("latin1", b"latin1"), "encoding", encoding, "must be latin1")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only an argument of the function above
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _latin1,
}
