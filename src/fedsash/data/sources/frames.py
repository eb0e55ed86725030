"""Tables of rows as pandas frames: from CSV, JSON lines, text, Parquet and Arrow files, and from folders of them."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...settings.errors import DataError, SettingError, check, library, shortened, some
from ...system.paths import plain_file, similar
from ..arrays import signed, user_numbers
from ..class_names import same_names
from .formats import parquet, saved
from .formats.memory import check_room, read_bytes, reading
from .formats.splits import chosen_test_split, files_of, is_of, splits_to_find

if TYPE_CHECKING:
    import pandas

log = logging.getLogger("fedsash")
TIMES = 12
"""What the rows of a text file take in memory while it is read, in sizes of the file."""
ColumnNames = dict[str, str]
"""Names of columns, and the option that asks for each."""
ENDINGS = (".csv", ".tsv", ".jsonl", ".txt", ".parquet", ".arrow")
PARTS = "fedsash.parts"
"""The key in a frame's `attrs` of each file or table that its rows are from, in their order, and how many these are."""
NAMES = "fedsash.names"
"""The key in a frame's `attrs` of the names of the classes by column."""
NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__|\s*")
"""What pandas and Arrow call a column without a name, such as an index."""
NUMERAL = re.compile(r"\s*[-+]?\d[\d.,' _]*")
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
    requirement = f"must be a folder, or end in {', '.join(ENDINGS)}"
    check(file.is_dir() or _ending(file) in ENDINGS, place, path, requirement)
    files = {"train": [file]}
    if file.is_dir():
        files = _files(file, place)
    test_split = chosen_test_split(files, "test", path)
    train_files = files["train"]
    test_files = files[test_split] if test_split else []
    tables = _tables([*train_files, *test_files], names, unpacked, rest)
    train = _stacked(tables[: len(train_files)], names, rest)
    if test_split is None:
        return train, None
    return train, _stacked(tables[len(train_files) :], names, rest)


def _files(folder: Path, place: str) -> dict[str, list[Path]]:
    """The files of each split in a folder."""
    splits = splits_to_find("train", "test")
    if saved.matches(folder):
        return saved.files(folder, splits)
    entries = sorted(folder.iterdir())
    present = [file for file in entries if _ending(file) in ENDINGS]
    split_files = {}
    for split in splits:
        files = files_of(split, present, folder)
        if files:
            split_files[split] = files
    unreadable = []
    for file in entries:
        stem = file.name.split(".")[0]
        if file not in present and any(is_of(split, stem) for split in splits):
            unreadable.append(file.name)
    names = some([*(file.name for file in present), *unreadable]) or "no such file"
    requirement = f"must hold train.csv, train.parquet or the like; there is {names}"
    check("train" in split_files, place, str(folder), requirement)
    endings = set()
    for files in split_files.values():
        endings |= {_ending(file) for file in files}
    requirement = f"must hold files of one kind, not {' and '.join(sorted(endings))}"
    check(len(endings) == 1, place, str(folder), requirement)
    used = [file for files in split_files.values() for file in files]
    others = [file.name for file in present if file not in used and _ending(file) in endings]
    if others:
        log.warning("%s: %s are left out: they are not named as a split", folder, some(others))
    if unreadable:
        log.warning("%s: %s are left out: only %s are read", folder, some(unreadable), ", ".join(ENDINGS))
    return split_files


def _ending(file: Path) -> str:
    """The ending of a file's name, in small letters."""
    return file.suffix.lower()


def _tables(
    files: Sequence[Path], names: ColumnNames, unpacked: float, rest: bool
) -> list[tuple[str, pandas.DataFrame]]:
    """The name and the rows of each file."""
    with library("pandas", "tables", "fedsash[data]"):
        import_module("pandas")
    frames = []
    for file in files:
        if _ending(file) in (".parquet", ".arrow"):
            frames.append(_of_arrow(file, names, unpacked, rest))
        else:
            frames.append(_of_text(file, names))
    if all(_ending(file) in (".csv", ".tsv") for file in files):
        _restore_texts(files, frames, names)
    return [(str(file), frame) for file, frame in zip(files, frames, strict=True)]


def _restore_texts(files: Sequence[Path], frames: Sequence[pandas.DataFrame], names: ColumnNames) -> None:
    """Read the labels, users, times and texts of CSV files as they are written, unless all of a column are numbers.

    pandas guesses the type of a column by the file, and within a large one by the part: "01" would be 1 where only
    numbers stand, and another class than the "01" beside an "X9".
    """
    from pandas.api.types import infer_dtype

    for name, option in names.items():
        if option == "features" or _are_numbers(name, frames):
            continue
        for file, frame in zip(files, frames, strict=True):
            if infer_dtype(frame[name]) != "string":
                with reading(file):
                    texts = _parsed(file, usecols=[name], dtype=str)
                frame[name] = texts[name]


def _are_numbers(name: str, frames: Sequence[pandas.DataFrame]) -> bool:
    """Whether a column holds numbers in all frames, or truth values in all."""
    kinds = {frame[name].dtype.kind for frame in frames}
    return kinds <= {"i", "u", "f"} or kinds == {"b"}


def _of_arrow(file: Path, names: ColumnNames, unpacked: float, rest: bool) -> pandas.DataFrame:
    """The rows of a Parquet or an Arrow file with the columns `names`, and the `rest` or not."""
    columns = parquet.present({"train": [file]})
    check_unique(columns, str(file))
    check_columns(names, columns, str(file))
    if not rest:
        columns = list(names)
    table = parquet.rows([file], columns, unpacked)
    with reading(file):
        frame = table.to_pandas()
        frame.attrs[NAMES] = parquet.class_names(table)
    return frame


def _of_text(file: Path, names: ColumnNames) -> pandas.DataFrame:
    """The rows of a text file, with all its columns."""
    import pandas

    with reading(file):
        try:
            if _ending(file) == ".txt":
                return pandas.DataFrame({"text": [_text(file)]})
            if _ending(file) == ".jsonl":
                lines = _text(file).split("\n")
                return pandas.DataFrame([_row(line) for line in lines if line.strip()])
            return _of_csv(file, names)
        except UnicodeDecodeError as error:
            raise DataError(f"{file} can't be read: it is no text in UTF-8: save it as UTF-8") from error


def _text(file: Path) -> str:
    return read_bytes(file, TIMES).decode("utf-8-sig")


def _of_csv(file: Path, names: ColumnNames) -> pandas.DataFrame:
    """The rows of a CSV or TSV file with the columns `names`. Those of users are read as texts: "007" is not 7."""
    import pandas

    users = [name for name, option in names.items() if option == "user"]
    check_room(TIMES * plain_file(file).stat().st_size, str(file))
    _check_names(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        # It says that a column has several types in one file: `_restore_texts` and `column` see to that.
        warnings.simplefilter("ignore", pandas.errors.DtypeWarning)
        try:
            frame = _parsed(file, dtype=dict.fromkeys(users, str))
        except pandas.errors.ParserWarning:
            cure = "its rows have more fields than its first line has names: name every column"
            raise DataError(f"{file}: {cure}") from None
    if _ending(file) == ".tsv":
        _check_no_rows_in_fields(frame, file)
    hint = HEADLESS if _headless(frame) else ""
    check_columns(names, list(frame.columns), str(file), hint)
    for name in users:
        frame[name] = _whole(frame[name])
    return frame


def _check_no_rows_in_fields(frame: pandas.DataFrame, file: Path) -> None:
    """Raise `DataError`, naming the row, if a field of a TSV file goes on over several lines, and each line is a row.

    Many write such files without quoting. Then a text that begins with a quotation mark goes on, for pandas, up to the
    next one at a text's end. In a file that is quoted, some line of a text has other tabs than a row.
    """
    for name in frame.columns:
        for row, value in enumerate(frame[name].tolist()):
            if isinstance(value, str) and "\n" in value:
                if not _lines_are_rows(file, len(frame.columns)):
                    return
                problem = f"{value!r:.40} begins with a quotation mark and goes on over several rows"
                cure = "quote such texts and double the marks in them, or save the table as .jsonl"
                raise DataError(f"column {name!r}, row {row} of {file}: {problem}: {cure}")


def _lines_are_rows(file: Path, columns: int) -> bool:
    """Whether each line of a TSV file, but empty ones, has a field for each of several columns."""
    with file.open(encoding="utf-8") as opened:
        return columns > 1 and all(line.count("\t") == columns - 1 for line in opened if line.strip("\n"))


def _parsed(file: Path, **options: Any) -> pandas.DataFrame:
    """A CSV or TSV file as pandas parses it with these options."""
    import pandas

    if pandas.__version__ < "3":
        options["float_precision"] = "round_trip"
    return pandas.read_csv(file, sep=_separator(file), compression=None, index_col=False, **options)


def _check_names(file: Path) -> None:
    """Raise `SettingError` for two columns of one name: pandas would call the second one of two labels `label.1`."""
    first = _parsed(file, header=None, nrows=1, dtype=str, keep_default_na=False)
    check_unique(first.iloc[0].tolist(), str(file))


def _headless(frame: pandas.DataFrame) -> bool:
    """Whether the first line of a CSV file looks like data: all of it are numbers, or it has numbers and texts in the
    same columns as the lines below."""
    are_numbers = [_is_number(name) for name in frame.columns]
    if not any(are_numbers):
        return False
    numeric_columns = [dtype.kind in "biuf" for dtype in frame.dtypes]
    return all(are_numbers) or are_numbers == numeric_columns


def check_unique(names: Sequence[str], where: str) -> None:
    """Raise `SettingError` if two columns have one name; several may have none."""
    twice = sorted(str(name) for name, times in Counter(names).items() if times > 1 and name != "")
    hint = HEADLESS if twice and all(map(_is_number, twice)) else ""
    check(not twice, f"columns of {where}", twice, f"must have a name of its own each{hint}")


def _separator(file: Path) -> str:
    """What the file's name says. Raises `DataError` for a first line that has only another one, `UnicodeDecodeError`
    for one that is no text."""
    separator = "\t" if _ending(file) == ".tsv" else ","
    with file.open(encoding="utf-8") as opened:
        names = opened.readline(2**16)
    if separator in names:
        return separator
    for other in ",;\t|":
        if other in names:
            cure = f"save it with {separator!r} between the fields, and a point in numbers"
            raise DataError(f"{file}: its fields look separated by {other!r}: {cure}")
    return separator


def _whole(texts: Any) -> Any:
    """A column of texts as whole numbers if these are all that they say: "007" and "7" are two users."""
    try:
        numbers = texts.astype("int64")
    except (ValueError, TypeError, OverflowError):
        return texts
    if (numbers.astype(str) == texts).all():
        return numbers
    return texts


def check_columns(names: ColumnNames, columns: Sequence[str], where: str, hint: str = "") -> None:
    """Raise `SettingError`, for the option that names it, unless all `names` are among the `columns`.

    A `hint` ends its line.
    """
    for name, option in names.items():
        if name not in columns:
            # Quotes show a name that differs by blanks alone.
            shown = repr if name in [str(column).strip() for column in columns] else str
            present = shortened(", ".join(map(shown, columns)), 200)
            requirement = f"there is no such column in {where}, only {present}{hint}"
            raise SettingError.at(option, name, requirement)


def others(columns: Sequence[str], chosen: Collection[str]) -> tuple[str, ...]:
    """The columns besides those `chosen`. Raises `SettingError` for one without a name, which may be an index."""
    rest = tuple(name for name in columns if name not in chosen)
    for name in rest:
        if NAMELESS.fullmatch(str(name)):
            cure = "write the table without it (in pandas: index=False), or name the features"
            raise SettingError("Table", "features", name, f"this column has no name: if it is an index, {cure}")
    return rest


def _row(line: str) -> dict[str, Any]:
    """The values in a line of JSON, by their columns."""
    row: dict[str, Any] = json.loads(line, object_pairs_hook=_once)
    check(isinstance(row, dict), "line", line[:60], "must be a JSON object")
    return row


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
    tables = [("the table", frame)]
    if test is not None:
        tables.append(("the test table", test))
    for name, table in tables:
        requirement = "must be a pandas frame; of a data set of Hugging Face it is data.to_pandas()"
        check(isinstance(table, pandas.DataFrame), "frame", type(table).__name__, requirement)
        if len(table) == 0:
            files = [where for where, _ in table.attrs.get(PARTS, [(name, 0)])]
            raise DataError(f"{some(files)}: must hold at least one row below the columns' names")
    return _stacked(tables, names, rest), len(frame)


def _stacked(tables: Sequence[tuple[str, pandas.DataFrame]], names: ColumnNames, rest: bool) -> pandas.DataFrame:
    """The rows of several frames, each with its name or its own `PARTS`: the columns `names`, and the `rest` or not."""
    import pandas

    parts = []
    frames = []
    class_names = []
    for name, table in tables:
        parts_of_table = table.attrs.get(PARTS, [(name, len(table))])
        parts += parts_of_table
        where, _ = parts_of_table[0]
        frames.append((where, _chosen(table, names, rest, where)))
        class_names.append((where, table.attrs.get(NAMES, {})))
    _check_same_columns(frames)
    rows = pandas.concat([frame for _, frame in frames], ignore_index=True)
    rows.attrs = {PARTS: parts, NAMES: same_names(class_names)}
    return rows


def _check_same_columns(frames: Sequence[tuple[str, pandas.DataFrame]]) -> None:
    """Raise `DataError`, naming the column, unless all frames have the same columns, in any order."""
    columns: dict[str, str] = {}  # by name, where it was seen first
    for where, frame in frames:
        for name in frame.columns:
            columns.setdefault(name, where)
    for name, first in columns.items():
        for where, frame in frames:
            if name not in frame.columns:
                raise DataError(f"{where} has no column {name!r}, and {first} has it: give both the same columns")


def _chosen(frame: pandas.DataFrame, names: ColumnNames, rest: bool, where: str) -> pandas.DataFrame:
    """The columns `names`, which may be levels of the index, and the `rest` or not."""
    levels = [name for name in frame.index.names if name in names and name not in frame.columns]
    if levels:
        frame = frame.reset_index(levels)
    check_unique(list(frame.columns), where)
    check_columns(names, list(frame.columns), where)
    if rest:
        return frame
    return frame[list(names)]


def row_of(rows: Any, row: int) -> str:
    """The name of a row: its number, from 0 on, in the file or table that it is from."""
    for where, count in rows.attrs[PARTS]:
        if row < count:
            return f"row {row} of {where}"
        row -= count
    raise IndexError(row)


def column(rows: Any, name: str) -> Any:
    """A column as float64 or int64; as float64, too, where whole numbers are beyond int64."""
    values = complete(rows, name, "a value is missing: fill it, or drop the row")
    if values.dtype.kind not in "biuf":
        raise DataError(_no_numbers(rows, name))
    # Old pandas makes objects of nullable floats, unless it is told the type.
    array = values.to_numpy(dtype=np.float64) if values.dtype.kind == "f" else np.asarray(values)
    array = signed(array)
    numbers = np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64)
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        row = int(is_finite.argmin())
        raise DataError(f"column {name!r}, {row_of(rows, row)}: {numbers[row]} is not finite: mend it, or drop the row")
    return numbers


def _no_numbers(rows: Any, name: str) -> str:
    """The line that refuses a column, with the first of its values that is no number.

    Where each is one, pandas has no type for them: whole numbers beyond 64 bits, or Python's decimals.
    """
    values = rows[name].tolist()
    row = next((i for i, value in enumerate(values) if not _is_number(value)), None)
    problem = "no numbers"
    if row is None:
        problem = "no numbers of 64 bits"
        row = max(range(len(values)), key=lambda i: abs(float(values[i])))
        cure = "make them floating-point numbers: in a file with a decimal point, in pandas with astype(float)"
    elif isinstance(values[row], str) and NUMERAL.fullmatch(values[row]):
        cure = "make them numbers, with a decimal point and nothing between thousands"
    else:
        cure = "give each category a number or a column of its own, or name other features"
    what = f"column {name!r} holds {rows[name].dtype} such as {values[row]!r:.40}, {problem}"
    return f"{what}, in {row_of(rows, row)}: {cure}"


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or a text that says one. Python alone takes `1_000`."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return "_" not in str(value)


def users(rows: Any, name: str) -> tuple[Tensor | None, tuple[str, ...]]:
    """The numbers of the users in a column, in the order of their names, and these names. Without a column no users."""
    if not name:
        return None, ()
    column = complete(rows, name, f"the user is missing{READ_AS_MISSING}")
    return user_numbers(column.to_numpy(), len(rows))


def times(rows: Any, name: str) -> NDArray[np.float64]:
    """A column of numbers, or of dates in the form of ISO 8601, as numbers `[n]` that grow with time.

    Raises `DataError` for any other: "03/04/2026" is two dates.
    """
    import pandas

    values = complete(rows, name, "a value is missing: fill it, or drop the row")
    if values.dtype.kind in "biuf":
        return np.asarray(column(rows, name), dtype=np.float64)
    try:
        dates = pandas.to_datetime(values, format="ISO8601", utc=True)
    except pandas.errors.OutOfBoundsDatetime:
        row = next((i for i, value in enumerate(values.tolist()) if not "1677" < str(value)[:4] < "2262"), 0)
        value = values.tolist()[row]
        cure = "is before 1678 or after 2261, where pandas has no dates to the nanosecond: write times as numbers"
        raise DataError(f"column {name!r}, {row_of(rows, row)}: {str(value)[:40]!r} {cure}") from None
    except (ValueError, TypeError):
        row = next((i for i, value in enumerate(values.tolist()) if not _is_date(value)), 0)
        value = values.tolist()[row]
        cure = "write dates like 2026-11-27 or 2026-11-27T14:30, or times as numbers"
        raise DataError(f"column {name!r}, {row_of(rows, row)}: {str(value)[:40]!r} is no date: {cure}") from None
    # Not Timestamp(0), whose nanoseconds reach to 2262 only.
    seconds = (dates - pandas.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds()
    return np.asarray(seconds, dtype=np.float64)


def _is_date(value: Any) -> bool:
    import pandas

    try:
        pandas.to_datetime([value], format="ISO8601", utc=True)
    except (ValueError, TypeError):
        return False
    return True


def labels(rows: Any, columns: Sequence[str]) -> tuple[Tensor, int, tuple[str, ...]]:
    """Labels, the number of classes (0: none) and the classes' names. Of several columns of 0 and 1 each is a class."""
    if len(columns) > 1:
        y = torch.from_numpy(np.stack([column(rows, name) for name in columns], axis=1))
        if y.is_floating_point() or not bool(((y == 0) | (y == 1)).all()):
            return y, 0, ()
        return y, len(columns), tuple(columns)
    [name] = columns
    values = complete(rows, name, f"the label is missing{READ_AS_MISSING}")
    if values.dtype.kind not in "biuf":
        _check_one_type(rows, name)
        classes, numbers = np.unique(values.astype(str), return_inverse=True)
        return torch.from_numpy(numbers), len(classes), tuple(map(str, classes))
    y = torch.from_numpy(column(rows, name))
    if y.is_floating_point():
        return y, 0, ()
    names = tuple(rows.attrs.get(NAMES, {}).get(name, ()))
    return y, len(names) or 1 + int(y.max()), names


def _check_one_type(rows: Any, name: str) -> None:
    """Raise `DataError` for labels of two types: 1 and "01", or 1 and 1.0, may be one class that is written twice."""
    first_row: dict[str, int] = {}  # by type
    values = rows[name].tolist()
    for row, value in enumerate(values):
        first_row.setdefault(type(value).__name__, row)
    if len(first_row) > 1:
        examples = [f"{values[row]!r:.40} in {row_of(rows, row)}" for row in first_row.values()]
        types = " and ".join(first_row)
        cure = "one class may be written in two ways: give all labels one type"
        raise DataError(f"column {name!r} holds {types}, such as {' and '.join(examples)}: {cure}")


def complete(rows: Any, name: str, problem: str) -> Any:
    """A column without missing values. Raises `DataError` with the first row that has none, and the `problem`."""
    missing = rows[name].isna().to_numpy()
    if missing.any():
        count = f"{int(missing.sum()):,} of {len(rows):,} rows lack it"
        raise DataError(f"column {name!r}, {row_of(rows, int(missing.argmax()))}: {problem}; {count}")
    return rows[name]
