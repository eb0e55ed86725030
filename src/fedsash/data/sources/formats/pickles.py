"""The file format of CIFAR-10 and CIFAR-100 (Krizhevsky 2009), and of Digit-Five in FedBN's files: Python pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ....settings.errors import DataError, brief, check
from .memory import read_bytes, reading
from .splits import Files, ImageSplit, ImageSplits, Pixels, folder_with

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
    return folder_with(folder, "data_batch_1", "train_part0.pkl") or folder_with(folder, "meta")


def files(folder: Path, splits: Sequence[str]) -> Files:
    """The five batches and the test batch, `train` and `test`, or FedBN's parts and its `test.pkl`."""
    home = _home(folder) or folder
    if (home / "data_batch_1").exists():
        split_files = {split: [home / name for name in names] for split, names in BATCHES.items()}
    elif (home / "train_part0.pkl").exists():
        test = home / "test.pkl"
        if not test.exists():
            test = home.parent / "test.pkl"
        parts = sorted(home.glob("train_part*.pkl"), key=lambda file: (len(file.name), file.name))
        split_files = {"train": parts, "test": [test]}
    else:
        split_files = {"train": [home / "train"], "test": [home / "test"]}
    for files in split_files.values():
        for file in files:
            check(file.is_file(), "path", str(home), f"{file.name} is missing")
    return {split: files for split, files in split_files.items() if split in splits}


def beside(folder: Path, files: Files) -> list[Path]:
    """The file with the names of the labels."""
    home = next(iter(files.values()))[0].parent
    return [home / name for name in NAMED if (home / name).is_file()]


def read(folder: Path, files: Files, columns: Mapping[str, str | None], unpacked: float) -> ImageSplits:
    """Images `[n, H, W, channels]`, labels and, for CIFAR-100, coarse labels. The names are those in `meta`."""
    parts = {}
    for split, split_files in files.items():
        batches = [_batch(file) for file in split_files]
        arrays = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
        parts[split] = ImageSplit(arrays.pop("x"), arrays, str(split_files[0]))
    return ImageSplits(parts, _names(beside(folder, files)))


def _batch(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of one file: `x`, `y` and, for CIFAR-100, `coarse`."""
    arrays = _arrays(load(file), file)
    count = len(arrays["x"])
    for key, values in arrays.items():
        if key == "x":
            fits = values.dtype == np.uint8 and values.ndim == 4
            requirement = "must be unsigned bytes"
        else:
            fits = np.issubdtype(values.dtype, np.integer) and values.ndim == 1
            requirement = "must be whole numbers"
        check(fits, f"{file}: {key}", f"{values.dtype} {list(values.shape)}", requirement)
        requirement = f"must be {count}, the number of images"
        check(len(values) == count, f"{file}: number of labels", len(values), requirement)
    return arrays


def _arrays(content: Any, file: Path) -> dict[str, NDArray[Any]]:
    """The arrays in the content of a file, whose types and lengths nobody has checked."""
    if isinstance(content, tuple):
        return _fedbn_arrays(content, file)
    return _cifar_arrays(_words(content, file), file)


def _fedbn_arrays(content: tuple[Any, ...], file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a pair of images and labels."""
    is_pair = len(content) == 2 and all(isinstance(array, np.ndarray) for array in content)
    check(is_pair, str(file), len(content), "must be a pair of images and labels, as in FedBN's files")
    x, y = content
    if x.ndim == 3:  # grey images
        x = x[..., None]
    return {"x": x, "y": y.reshape(-1)}


def _cifar_arrays(table: dict[str, Any], file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a dictionary as CIFAR-10 and CIFAR-100 have it."""
    labels = "labels"
    if "fine_labels" in table:
        labels = "fine_labels"
    requirement = "must have the keys data and labels, or data, fine_labels and coarse_labels"
    check("data" in table and labels in table, f"{file}: keys", sorted(table), requirement)
    arrays = {"x": _image(table["data"], file), "y": _numbers(table[labels])}
    if "coarse_labels" in table:
        arrays["coarse"] = _numbers(table["coarse_labels"])
    return arrays


def _numbers(values: Any) -> NDArray[Any]:
    """An array, or a list of numbers as an array. Anything else becomes an array of no numbers.

    NumPy would follow nested lists, and a short pickle can nest a list into itself a million million times.
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, list) and all(type(value) in (int, float) for value in values):
        return np.array(values)
    return np.array([None])


def _words(content: Any, file: Path) -> dict[str, Any]:
    """A dictionary with strings as keys. In pickles of Python 2 they are bytes."""
    check(isinstance(content, dict), str(file), type(content).__name__, "must be a dictionary")
    return {_word(key): value for key, value in content.items()}


def _word(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    return str(value)


def _image(data: Any, file: Path) -> Pixels:
    """Images `[n, 32, 32, 3]` from rows of 1,024 red, 1,024 green and 1,024 blue values."""
    shape = getattr(data, "shape", None)
    fits = isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == 3 * SIDE * SIDE
    check(fits, f"{file}: data", shape, f"must be an array of {3 * SIDE * SIDE} numbers for each image")
    return np.ascontiguousarray(data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _names(metadata: list[Path]) -> dict[str, list[str]]:
    """The names of the labels in CIFAR-10's `batches.meta` or CIFAR-100's `meta`; empty without such a file."""
    if not metadata:
        return {}
    file = metadata[0]
    table = _words(load(file), file)
    names = {}
    for kind, key in (("label_names", "y"), ("fine_label_names", "y"), ("coarse_label_names", "coarse")):
        if kind in table:
            words = table[kind]
            are_words = isinstance(words, list) and all(isinstance(word, bytes | str) for word in words)
            check(are_words, f"{file}: names of labels", type(words).__name__, "must be a list of words")
            names[key] = [_word(word) for word in words]
    return names


def load(file: Path) -> Any:
    """The pickled content of a file: arrays of numbers, dictionaries, lists, tuples, bytes, strings and numbers.

    A pickle can call any function by its name. So only a few names are allowed; another one raises `DataError` before
    anything is called. For NumPy's arrays and types the pickle gets `_Array` and `_Kind` of this module, since a
    manipulated state can make NumPy's own classes read memory outside of an array.
    """
    raw = read_bytes(file)
    with reading(file):
        try:
            content = _Unpickler(io.BytesIO(raw)).load()
        except _Refused as error:
            raise DataError(f"{file}: asks for {error}: must hold arrays, lists, strings and numbers only") from None
        if isinstance(content, dict):
            return {key: _array_or_value(value) for key, value in content.items()}
        if isinstance(content, tuple):
            return tuple(_array_or_value(value) for value in content)
        return content


class _Refused(Exception):
    """A pickle asked for a function that is not allowed; the message is its name."""


class _Table(dict[Any, Any]):
    """A dictionary whose keys are words and numbers: the hash of a deeply nested tuple would end the process."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, bytes | str | int):
            raise ValueError("a key of a dictionary must be a word")
        super().__setitem__(key, value)


class _Opcodes(dict[int, Any]):
    """What the reader does for each opcode; any other opcode is refused."""

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
        if (module, name) == ("_codecs", "encode"):
            return self._latin1
        return _ALLOWED[module, name]

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
        self.name = _ascii(name)
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if _ascii(state[1]) == ">" else "<"

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
        order: Literal["F", "C"] = "F" if columns_first else "C"
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order=order)


def _ascii(text: Any) -> Any:
    """A text, which Python 2 wrote as bytes."""
    if isinstance(text, bytes):
        return text.decode("ascii")
    return text


def _array_or_value(value: Any) -> Any:
    """The array that an `_Array` stands for; any other value as it is."""
    if isinstance(value, _Array):
        return value.value
    return value


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only an argument of the function above
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): None,  # stands for the reader's own function
}
