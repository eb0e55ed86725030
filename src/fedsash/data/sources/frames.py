"""Tables of rows as pandas frames: from CSV, JSON lines, text, Parquet and Arrow files, and from folders of them."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...settings.errors import DataError, check, library, shortened, some
from ...system.paths import plain_file, similar
from ..arrays import signed, user_numbers
from ..class_names import same_names
from .formats import parquet, saved
from .formats.memory import check_room, content, damages
from .formats.splits import asked, is_of, tested

if TYPE_CHECKING:
    import pandas

TIMES = 12
"""What the rows of a text file take in memory while it is read, in sizes of the file."""
ColumnNames = dict[str, str]
"""Names of columns, and the option that asks for each."""
ENDINGS = (".csv", ".tsv", ".jsonl", ".txt", ".parquet", ".arrow")
PARTS = "fedsash.parts"
NAMES = "fedsash.names"
"""In a frame's `attrs`: each file or table that its rows are from, in their order, and how many these are; the names of
the classes by column."""
NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__|\s*")
"""What pandas and Arrow call a column without a name, such as an index."""
NUMERAL = re.compile(r"\s*[-+]?\d[\d.,' ]*")
"""A number as people write it."""
HEADLESS = ": its first line looks like data, and must give the columns' names"
READ_AS_MISSING = " (of a CSV, NA, None and null are read as missing, too)"


def read(
    path: str, names: ColumnNames, unpacked: float, place: str, rest: bool = False
) -> tuple[pandas.DataFrame, pandas.DataFrame | None]:
    """The rows for training and those for testing, if there are any, with the columns `names`, and the `rest` or not.

    `path` is a file, or a folder with `train.csv` and `test.csv` and so on, of any of the `ENDINGS`, or what
    `save_to_disk` of `datasets` wrote. Of a `.txt` file all lines are one row with the column `text`.

    Raises `SettingError`, for the setting `place`, or `DataError`, which names the file.
    """
    file = Path(path).expanduser()
    check(file.exists(), place, path, f"there is no such file or folder{similar(file)}")
    check(file.is_dir() or file.suffix in ENDINGS, place, path, f"must be a folder, or end in {', '.join(ENDINGS)}")
    files = _files(file, place) if file.is_dir() else {"train": [file]}
    test = tested(files, "test", path)
    rows = {split: _joined(files[split], names, unpacked, rest) for split in ("train", test) if split is not None}
    return rows["train"], None if test is None else rows[test]


def _files(folder: Path, place: str) -> dict[str, list[Path]]:
    if saved.matches(folder):
        return saved.files(folder, asked("train", "test"))
    present = sorted(file for file in folder.iterdir() if file.suffix in ENDINGS)
    found = {s: [f for f in present if is_of(f, s)] for s in asked("train", "test")}
    names = some([file.name for file in present]) or "no such file"
    check(bool(found["train"]), place, str(folder), f"must hold train.csv, train.parquet or the like; there is {names}")
    kinds = sorted({file.suffix for its in found.values() for file in its})
    check(len(kinds) == 1, place, str(folder), f"must hold files of one kind, not {' and '.join(kinds)}")
    return {split: its for split, its in found.items() if its}


def _joined(files: Sequence[Path], names: ColumnNames, unpacked: float, rest: bool) -> pandas.DataFrame:
    with library("pandas", "tables", "fedsash[data]"):
        import_module("pandas")
    arrow = files[0].suffix in (".parquet", ".arrow")
    read = [_of_arrow(file, names, unpacked, rest) if arrow else _of_text(file, names) for file in files]
    return _stacked([(str(file), frame) for file, frame in zip(files, read, strict=True)], names, rest)


def _of_arrow(file: Path, names: ColumnNames, unpacked: float, rest: bool) -> pandas.DataFrame:
    there = parquet.present({"train": [file]})
    check_unique(there, str(file))
    check_columns(names, there, str(file))
    table = parquet.rows([file], there if rest else list(names), unpacked)
    with damages(file):
        frame = table.to_pandas()
        frame.attrs[NAMES] = parquet.class_names(table)
    return frame


def _of_text(file: Path, names: ColumnNames) -> pandas.DataFrame:
    import pandas

    with damages(file):
        try:
            if file.suffix == ".txt":
                return pandas.DataFrame({"text": [_text(file)]})
            if file.suffix == ".jsonl":
                return pandas.DataFrame([_row(line) for line in _text(file).split("\n") if line.strip()])
            return _of_csv(file, names)
        except UnicodeDecodeError as error:
            raise DataError(f"{file} can't be read: it is no text in UTF-8: save it as UTF-8") from error


def _text(file: Path) -> str:
    return content(file, TIMES).decode("utf-8-sig")


def _of_csv(file: Path, names: ColumnNames) -> pandas.DataFrame:
    """The rows of a CSV or TSV file with the columns `names`. Those of users are read as texts: "007" is not 7."""
    import pandas

    users = [name for name, option in names.items() if option == "user"]
    check_room(TIMES * plain_file(file).stat().st_size, str(file))
    how: dict[str, Any] = {} if pandas.__version__ >= "3" else {"float_precision": "round_trip"}
    how |= {"sep": _separator(file), "dtype": dict.fromkeys(users, str)}
    _check_names(file, how["sep"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            frame = pandas.read_csv(file, compression=None, index_col=False, **how)
        except pandas.errors.ParserWarning:
            right = "its rows have more fields than its first line has names: name every column"
            raise DataError(f"{file}: {right}") from None
    check_columns(names, list(frame.columns), str(file), HEADLESS if _headless(frame) else "")
    for name in {*users} & {*frame.columns}:
        frame[name] = _whole(frame[name])
    return frame


def _check_names(file: Path, separator: str) -> None:
    """Raise `SettingError` for two columns of one name: pandas would call the second one of two labels `label.1`."""
    import pandas

    how: dict[str, Any] = {"sep": separator, "dtype": str, "keep_default_na": False, "compression": None}
    first = pandas.read_csv(file, header=None, nrows=1, index_col=False, **how)
    check_unique(first.iloc[0].tolist(), str(file))


def _headless(frame: pandas.DataFrame) -> bool:
    """Whether the first line of a CSV file looks like data: all of it are numbers, or it has numbers and texts in the
    same columns as the lines below."""
    numbers = [_is_number(name) for name in frame.columns]
    alike = [one == (dtype.kind in "biuf") for one, dtype in zip(numbers, frame.dtypes, strict=True)]
    return any(numbers) and (all(numbers) or all(alike))


def check_unique(names: Sequence[str], where: str) -> None:
    """Raise `SettingError` if two columns have one name; several may have none."""
    twice = sorted(str(name) for name, times in Counter(names).items() if times > 1 and name != "")
    hint = HEADLESS if twice and all(map(_is_number, twice)) else ""
    check(not twice, f"columns of {where}", twice, f"must have a name of its own each{hint}")


def _separator(file: Path) -> str:
    """What the file's name says. Raises `DataError` for a first line that has only another one."""
    right = "\t" if file.suffix == ".tsv" else ","
    with file.open("rb") as opened:
        names = opened.readline(2**16)
    other = None if right.encode() in names else next((one for one in ",;\t|" if one.encode() in names), None)
    if other is not None:
        how = f"save it with {right!r} between the fields, and a point in numbers"
        raise DataError(f"{file}: its fields look separated by {other!r}: {how}")
    return right


def _whole(texts: Any) -> Any:
    """A column of texts as whole numbers if these are all that they say: "007" and "7" are two users."""
    try:
        numbers = texts.astype("int64")
    except (ValueError, TypeError, OverflowError):
        return texts
    return numbers if (numbers.astype(str) == texts).all() else texts


def check_columns(names: ColumnNames, there: Sequence[str], where: str, hint: str = "") -> None:
    """Raise `SettingError`, for the option that names it, unless all `names` are among the columns that are there.

    A `hint` ends its line.
    """
    for name, option in names.items():
        shown = repr if name in [str(one).strip() for one in there] else str
        right = f"there is no such column in {where}, only {shortened(', '.join(map(shown, there)), 200)}{hint}"
        check(name in there, option, name, right)


def others(columns: Sequence[str], given: Collection[str]) -> tuple[str, ...]:
    """The columns besides those `given`. Raises `SettingError` for one without a name, which may be an index."""
    found = tuple(name for name in columns if name not in given)
    nameless = next((name for name in found if NAMELESS.fullmatch(str(name))), None)
    how = "write the table without it (in pandas: index=False), or name the features"
    check(nameless is None, "Table.features", nameless, f"this column has no name: if it is an index, {how}")
    return found


def _row(line: str) -> dict[str, Any]:
    row = json.loads(line, object_pairs_hook=_once)
    check(isinstance(row, dict), "line", line[:60], "must be a JSON object")
    found: dict[str, Any] = row
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose keys must not be written twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        check_unique([name for name, _ in pairs], "a line")
    return row


def joined(frame: Any, test: Any, names: ColumnNames, rest: bool = False) -> tuple[pandas.DataFrame, int]:
    """The rows of a frame and of one for testing, if there is one, and the number of rows of the first.

    They have the columns `names`, and the `rest` or not. Raises errors as `read` does.
    """
    with library("pandas", "tables", "fedsash[data]"):
        import pandas
    given = [("the table", frame)] if test is None else [("the table", frame), ("the test table", test)]
    for _, one in given:
        right = "must be a pandas frame; of a data set of Hugging Face it is data.to_pandas()"
        check(isinstance(one, pandas.DataFrame), "frame", type(one).__name__, right)
        check(len(one) > 0, "frame", list(one.columns), "must hold at least one row")
    return _stacked(given, names, rest), len(frame)


def _stacked(given: Sequence[tuple[str, pandas.DataFrame]], names: ColumnNames, rest: bool) -> pandas.DataFrame:
    """The rows of several frames, each with its name or its own `PARTS`: the columns `names`, and the `rest` or not."""
    import pandas

    parts = [frame.attrs.get(PARTS, [(where, len(frame))]) for where, frame in given]
    wheres = [part[0][0] for part in parts]
    frames = [_chosen(frame, names, rest, where) for (_, frame), where in zip(given, wheres, strict=True)]
    for name in dict.fromkeys(name for frame in frames for name in frame.columns):
        has = [name in frame.columns for frame in frames]
        if not all(has):
            right = f"and {wheres[has.index(True)]} has it: give both the same columns"
            raise DataError(f"{wheres[has.index(False)]} has no column {name!r}, {right}")
    rows = pandas.concat(frames, ignore_index=True)
    named = ((where, frame.attrs.get(NAMES, {})) for where, (_, frame) in zip(wheres, given, strict=True))
    rows.attrs = {PARTS: [one for part in parts for one in part], NAMES: same_names(named)}
    return rows


def _chosen(frame: pandas.DataFrame, names: ColumnNames, rest: bool, where: str) -> pandas.DataFrame:
    """The columns `names`, which may be levels of the index, and the `rest` or not."""
    levels = [name for name in frame.index.names if name in names and name not in frame.columns]
    frame = frame.reset_index(levels) if levels else frame
    check_unique(list(frame.columns), where)
    check_columns(names, list(frame.columns), where)
    return frame if rest else frame[list(names)]


def row_of(rows: Any, row: int) -> str:
    """The name of a row: its number, from 0 on, in the file or table that it is from."""
    for where, count in rows.attrs[PARTS]:
        if row < count:
            return f"row {row} of {where}"
        row -= count
    raise IndexError(row)


def column(rows: Any, name: str) -> Any:
    """A column as float64 or int64; as float64, too, where whole numbers are beyond int64."""
    values = _complete(rows, name, "a value is missing: fill it, or drop the row")
    if values.dtype.kind not in "biuf":
        raise DataError(_no_numbers(rows, name))
    kind = values.dtype.kind  # old pandas makes objects of nullable floats
    values = signed(values.to_numpy(dtype=np.float64) if kind == "f" else np.asarray(values))
    numbers = np.array(values, dtype=np.float64 if values.dtype.kind == "f" else np.int64)
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(finite.argmin())
        raise DataError(f"column {name!r}, {row_of(rows, row)}: {numbers[row]} is not finite: mend it, or drop the row")
    return numbers


def _no_numbers(rows: Any, name: str) -> str:
    """The line that refuses a column, with the first of its values that is no number."""
    values = rows[name].tolist()
    row = next((i for i, value in enumerate(values) if not _is_number(value)), 0)
    value = values[row]
    right = "give each category a number or a column of its own, or name other features"
    if isinstance(value, str) and NUMERAL.fullmatch(value):
        right = "make them numbers, with a decimal point and nothing between thousands"
    return (
        f"column {name!r} holds {rows[name].dtype} such as {value!r:.40}, no numbers, in {row_of(rows, row)}: {right}"
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def users(rows: Any, name: str) -> tuple[Tensor | None, tuple[str, ...]]:
    """The numbers of the users in a column, in the order of their names, and these names. Without a column no users."""
    if not name:
        return None, ()
    return user_numbers(_complete(rows, name, f"the user is missing{READ_AS_MISSING}").to_numpy(), len(rows))


def labels(rows: Any, columns: Sequence[str]) -> tuple[Tensor, int, tuple[str, ...]]:
    """Labels, the number of classes (0: none) and the classes' names."""
    if len(columns) > 1:
        y = torch.from_numpy(np.stack([column(rows, name) for name in columns], axis=1))
        return (y, 0, ()) if y.is_floating_point() else (y, len(columns), tuple(columns))
    [name] = columns
    values = _complete(rows, name, f"the label is missing{READ_AS_MISSING}")
    if values.dtype.kind not in "biuf":
        found, numbers = np.unique(values.astype(str), return_inverse=True)
        return torch.from_numpy(numbers), len(found), tuple(map(str, found))
    y = torch.from_numpy(column(rows, name))
    names = tuple(rows.attrs.get(NAMES, {}).get(name, ()))
    return (y, 0, ()) if y.is_floating_point() else (y, len(names) or 1 + int(y.max()), names)


def _complete(rows: Any, name: str, otherwise: str) -> Any:
    missing = rows[name].isna().to_numpy()
    if missing.any():
        count = f"{int(missing.sum()):,} of {len(rows):,} rows lack it"
        raise DataError(f"column {name!r}, {row_of(rows, int(missing.argmax()))}: {otherwise}; {count}")
    return rows[name]
