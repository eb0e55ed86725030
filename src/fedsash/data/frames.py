"""Tables of rows as pandas frames: from CSV, JSON lines, text, Parquet and Arrow files, and from folders of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..basics.errors import DataError, check, library, shortened, some
from ..basics.paths import plain_file, similar
from .arrays import user_numbers
from .formats import parquet, saved
from .formats.memory import check_room, content, damages
from .formats.splits import asked, is_of, tested

if TYPE_CHECKING:
    import pandas

TIMES = 12
"""What the rows of a text file take in memory while it is read, in sizes of the file."""
Asked = dict[str, str]
"""Names of columns, and the option that asks for each."""
ENDINGS = (".csv", ".tsv", ".jsonl", ".txt", ".parquet", ".arrow")


def read(
    path: str, names: Asked, unpacked: float, place: str, rest: bool = False
) -> tuple[pandas.DataFrame, pandas.DataFrame | None]:
    """The rows for training and those for testing, if there are any, with the columns `names`, and the `rest` or not.

    `path` is a file, or a folder with `train.csv` and `test.csv` and so on, of any of the `ENDINGS`, or what
    `save_to_disk` of `datasets` wrote. Of a `.txt` file all lines are one row with the column `text`. `attrs["names"]`
    of a frame are the names of class labels, by column, if the files have them.

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


def _joined(files: Sequence[Path], names: Asked, unpacked: float, rest: bool) -> pandas.DataFrame:
    with library("pandas", "tables", "fedsash[data]"):
        import pandas
    if files[0].suffix in (".parquet", ".arrow"):
        return _of_arrow(files, names, unpacked, rest)
    return pandas.concat([_of_text(file, names, rest) for file in files], ignore_index=True)


def _of_arrow(files: Sequence[Path], names: Asked, unpacked: float, rest: bool) -> pandas.DataFrame:
    there = parquet.present({"train": list(files)})
    check_columns(names, there, str(files[0]))
    table = parquet.rows(files, there if rest else list(names), unpacked)
    with damages(files[0]):
        frame = table.to_pandas()
        frame.attrs["names"] = parquet.label_names(table, {name: name for name in table.column_names})
    return frame


def _of_text(file: Path, names: Asked, rest: bool) -> pandas.DataFrame:
    import pandas

    with damages(file):
        if file.suffix == ".txt":
            return pandas.DataFrame({"text": [_text(file)]})
        if file.suffix == ".jsonl":
            frame = pandas.DataFrame([_row(line) for line in _text(file).split("\n") if line.strip()])
        else:
            frame = _of_csv(file, [name for name, option in names.items() if option == "user"])
    check_columns(names, list(frame.columns), str(file))
    return frame if rest else frame[list(names)]


def _text(file: Path) -> str:
    return content(file, TIMES).decode("utf-8-sig")


def _of_csv(file: Path, users: Sequence[str]) -> pandas.DataFrame:
    """The rows of a CSV or TSV file. The columns of `users` are read as texts: "007" is not 7."""
    import pandas

    check_room(TIMES * plain_file(file).stat().st_size, str(file))
    how: dict[str, Any] = {} if pandas.__version__ >= "3" else {"float_precision": "round_trip"}
    how |= {"sep": "\t" if file.suffix == ".tsv" else ",", "dtype": dict.fromkeys(users, str)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            frame = pandas.read_csv(file, compression=None, index_col=False, **how)
        except pandas.errors.ParserWarning:
            right = "its rows have more fields than its first line has names: name every column"
            raise DataError(f"{file}: {right}") from None
    for name in {*users} & {*frame.columns}:
        frame[name] = _whole(frame[name])
    return frame


def _whole(texts: Any) -> Any:
    """A column of texts as whole numbers if these are all that they say: "007" and "7" are two users."""
    try:
        numbers = texts.astype("int64")
    except (ValueError, TypeError, OverflowError):
        return texts
    return numbers if (numbers.astype(str) == texts).all() else texts


def check_columns(names: Asked, there: Sequence[str], where: str) -> None:
    """Raise `SettingError`, for the option that names it, unless all `names` are among the columns that are there."""
    right = f"there is no such column in {where}, only {shortened(', '.join(map(str, there)), 200)}"
    for name, option in names.items():
        check(name in there, option, name, right)


def _row(line: str) -> dict[str, Any]:
    row = json.loads(line)
    check(isinstance(row, dict), "line", line[:60], "must be a JSON object")
    found: dict[str, Any] = row
    return found


def joined(frame: Any, test: Any) -> tuple[pandas.DataFrame, int]:
    """The rows of a frame and of one for testing, if there is one, and the number of rows of the first."""
    with library("pandas", "tables", "fedsash[data]"):
        import pandas
    given = [frame] if test is None else [frame, test]
    for one in given:
        right = "must be a pandas frame; of a data set of Hugging Face it is data.to_pandas()"
        check(isinstance(one, pandas.DataFrame), "frame", type(one).__name__, right)
        check(len(one) > 0, "frame", list(one.columns), "must hold at least one row")
    rows = pandas.concat(given, ignore_index=True)
    rows.attrs = dict(frame.attrs)
    return rows, len(frame)


def column(rows: Any, name: str) -> Any:
    """A column as float64 or int64."""
    values = _complete(rows, name, "a value is missing: fill it, or drop the row")
    if values.dtype.kind not in "biuf":
        found = f"column {name!r} holds {values.dtype} such as {values.iloc[0]!r:.40}, no numbers"
        raise DataError(f"{found}: give each category a number or a column of its own, or name other features")
    numbers = np.array(values, dtype=np.float64 if values.dtype.kind == "f" else np.int64)
    if not np.isfinite(numbers).all():
        row = int(np.isfinite(numbers).argmin())
        raise DataError(f"column {name!r}, row {row}: {numbers[row]} is not finite: mend it, or drop the row")
    return numbers


def users(rows: Any, name: str) -> tuple[Tensor | None, tuple[str, ...]]:
    """The numbers of the users in a column, in the order of their names, and these names. Without a column no users."""
    if not name:
        return None, ()
    return user_numbers(_complete(rows, name, "the user is missing").to_numpy(), len(rows))


def labels(rows: Any, columns: Sequence[str]) -> tuple[Tensor, int, tuple[str, ...]]:
    """Labels, the number of classes (0: none) and the classes' names."""
    if len(columns) > 1:
        y = torch.from_numpy(np.stack([column(rows, name) for name in columns], axis=1))
        return (y, 0, ()) if y.is_floating_point() else (y, len(columns), tuple(columns))
    [name] = columns
    values = _complete(rows, name, "the label is missing")
    if values.dtype.kind not in "biuf":
        found, numbers = np.unique(values.astype(str), return_inverse=True)
        return torch.from_numpy(numbers), len(found), tuple(map(str, found))
    y, names = torch.from_numpy(column(rows, name)), tuple(rows.attrs.get("names", {}).get(name, ()))
    return (y, 0, ()) if y.is_floating_point() else (y, len(names) or 1 + int(y.max()), names)


def _complete(rows: Any, name: str, otherwise: str) -> Any:
    missing = rows[name].isna().to_numpy()
    if missing.any():
        count = f"{int(missing.sum()):,} of {len(rows):,} rows lack it"
        raise DataError(f"column {name!r}, row {int(missing.argmax())}: {otherwise}; {count}")
    return rows[name]
