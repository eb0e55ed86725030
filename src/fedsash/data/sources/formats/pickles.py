"""The form of CIFAR-10 and CIFAR-100 (Krizhevsky 2009), and of Digit-Five in FedBN's files: Python pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ....settings.errors import DataError, brief, check
from .memory import content, damages
from .splits import Files, ImageSplit, ImageSplits, Pixels, home

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
SIDE = 32
OPCODES = b"\x80\x95N\x89\x88IJKML\x8aFGSTBVX\x8d\x8eUC\x8ct)\x85\x86\x87]lc\x93Rghjpqr\x94aesu(."
"""What a pickle may do: put constants, tuples and lists on the stack, fill lists and dictionaries, remember and recall
values, and ask for a name of `_ALLOWED` and call it.
"""
NAMED = ("batches.meta", "meta")
"""The files with the names of CIFAR-10's and of CIFAR-100's labels."""
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


def beside(folder: Path, files: Files) -> list[Path]:
    """The file with the names of the labels."""
    place = next(iter(files.values()))[0].parent
    return [place / name for name in NAMED if (place / name).is_file()]


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """Images `[n, H, W, channels]`, labels and, for CIFAR-100, coarse labels. The names are those in `meta`."""
    parts = {}
    for split, its in files.items():
        batches = [_batch(file) for file in its]
        merged = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
        parts[split] = ImageSplit(merged.pop("x"), merged, str(its[0]))
    return ImageSplits(parts, _names(next(iter(files.values()))[0].parent))


def _batch(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of one file: `x`, `y` and, for CIFAR-100, `coarse`."""
    loaded = load(file)
    if isinstance(loaded, tuple):
        right = "must be a pair of images and labels, as in FedBN's files"
        check(len(loaded) == 2 and all(isinstance(a, np.ndarray) for a in loaded), str(file), len(loaded), right)
        x, y = loaded
        found = {"x": x[..., None] if x.ndim == 3 else x, "y": y.reshape(-1)}
    else:
        table = _words(loaded, file)
        labels = next((name for name in ("fine_labels", "labels") if name in table), None)
        right = "must have the keys data and labels, or data, fine_labels and coarse_labels"
        check("data" in table and labels is not None, f"{file}: keys", sorted(map(str, table)), right)
        found = {"x": _image(table["data"], file), "y": _numbers(table[str(labels)])}
        if "coarse_labels" in table:
            found["coarse"] = _numbers(table["coarse_labels"])
    for key, values in found.items():
        right = "must be whole numbers" if key != "x" else "must be unsigned bytes"
        of_images = values.dtype == np.uint8 and values.ndim == 4
        of_numbers = np.issubdtype(values.dtype, np.integer) and values.ndim == 1
        fits = of_images if key == "x" else of_numbers
        check(fits, f"{file}: {key}", f"{values.dtype} {list(values.shape)}", right)
        right = f"must be {len(found['x'])}, the number of images"
        check(len(values) == len(found["x"]), f"{file}: number of labels", len(values), right)
    return found


def _numbers(values: Any) -> NDArray[Any]:
    """An array, or a list of numbers as an array. Anything else becomes an array of no numbers.

    NumPy would follow nested lists, and a short pickle can nest a list into itself a million million times.
    """
    if isinstance(values, np.ndarray):
        return values
    are_numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
    return np.array(values if are_numbers else [None])


def _words(loaded: Any, file: Path) -> dict[str, Any]:
    """A dictionary with strings as keys. In pickles of Python 2 they are bytes."""
    check(isinstance(loaded, dict), str(file), type(loaded).__name__, "must be a dictionary")
    return {_word(key): value for key, value in loaded.items()}


def _word(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _image(data: Any, file: Path) -> Pixels:
    """Images `[n, 32, 32, 3]` from rows of 1,024 red, 1,024 green and 1,024 blue values."""
    shape = getattr(data, "shape", None)
    fits = isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == 3 * SIDE * SIDE
    check(fits, f"{file}: data", shape, f"must be an array of {3 * SIDE * SIDE} numbers for each image")
    return np.ascontiguousarray(data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _names(place: Path) -> dict[str, list[str]]:
    """The names of the labels in CIFAR-10's `batches.meta` or CIFAR-100's `meta`; empty without such a file."""
    file = next((place / name for name in NAMED if (place / name).is_file()), None)
    table = {} if file is None else _words(load(file), file)
    kinds = {"label_names": "y", "fine_label_names": "y", "coarse_label_names": "coarse"}
    names = {key: table[kind] for kind, key in kinds.items() if kind in table}
    for its in names.values():
        are_words = isinstance(its, list) and all(isinstance(name, bytes | str) for name in its)
        check(are_words, f"{file}: names of labels", type(its).__name__, "must be a list of words")
    return {key: list(map(_word, its)) for key, its in names.items()}


def load(file: Path) -> Any:
    """The pickled content of a file: arrays of numbers, dictionaries, lists, tuples, bytes, strings and numbers.

    A pickle can call any function by its name. So only a few names are allowed; another one raises `DataError` before
    anything is called. For NumPy's arrays and types the pickle gets `_Array` and `_Kind` of this module, since a
    manipulated state can make NumPy's own classes read memory outside of an array.
    """
    raw = content(file)
    with damages(file):
        try:
            found = _Unpickler(io.BytesIO(raw)).load()
        except _Refused as error:
            raise DataError(f"{file}: asks for {error}: must hold arrays, lists, strings and numbers only") from None
        if isinstance(found, dict):
            return {key: _plain(value) for key, value in found.items()}
        return tuple(map(_plain, found)) if isinstance(found, tuple) else found


class _Refused(Exception):
    """A pickle asked for a function that is not allowed; the message is its name."""


class _Table(dict[Any, Any]):
    """A dictionary whose keys are words and numbers: the hash of a deeply nested tuple would end the process."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, bytes | str | int):
            raise ValueError("a key of a dictionary must be a word")
        super().__setitem__(key, value)


class _Opcodes(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        raise ValueError(f"opcode {bytes([code])!r} is none that arrays, lists, strings and numbers need")


class _Unpickler(pickle._Unpickler):
    """Python's own reader, not the one in C, whose memo takes 64 GB if ten bytes say so.

    It knows the opcodes that arrays, dictionaries, lists, words and numbers need. None of them repeats or joins what is
    there, so what is read takes no more than about 100 times the memory of the file.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, opened: IO[bytes]) -> None:
        super().__init__(opened, encoding="bytes")
        self._texts: dict[str, bytes] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return self._latin1 if (module, name) == ("_codecs", "encode") else _ALLOWED[module, name]

    def _latin1(self, text: str, encoding: str) -> bytes:
        """Bytes in the form in which Python 3 writes them for Python 2; the same object for the same text."""
        if encoding not in ("latin1", b"latin1"):
            raise ValueError(f"encoding = {brief(encoding)}: must be latin1")
        return self._texts.setdefault(text, text.encode("latin1"))

    def _empty_table(self) -> None:
        self.stack.append(_Table())

    def _table(self) -> None:
        items = self.pop_mark()
        table = _Table()
        for key, value in zip(items[::2], items[1::2], strict=True):
            table[key] = value
        self.stack.append(table)

    def _build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Kind):
            raise ValueError("a state is given to what has none")
        self.stack[-1].__setstate__(state)

    dispatch: ClassVar[dict[int, Any]] = _Opcodes({code: pickle._Unpickler.dispatch[code] for code in OPCODES})
    dispatch |= {pickle.EMPTY_DICT[0]: _empty_table, pickle.DICT[0]: _table, pickle.BUILD[0]: _build}


class _Kind:
    """The type of an array's numbers, such as `u1`. Its state begins with a version and the byte order."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = name.decode("ascii") if isinstance(name, bytes) else name
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        self.order = ">" if order == ">" else "<"

    @property
    def dtype(self) -> np.dtype[Any]:
        if self.name not in NUMBERS:
            raise ValueError(f"type of numbers = {brief(self.name)}: must be one of {', '.join(NUMBERS)}")
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


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only an argument of the function above
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): None,  # stands for the reader's own function
}
