"""Tables: a CSV or Parquet file, or a pandas frame, with columns of features, labels and perhaps users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..basics.errors import DataError, check, library, one_line
from ..basics.typed import typed
from .samples import Samples
from .source import Source, hold_out
from .transform import PLAIN


@dataclass(frozen=True)
@typed
class Table:
    """A table of samples, one in each row, from a CSV or Parquet file.

    - `label`: the column of labels, or several columns: texts and integers are classes, other numbers need a task;
    - `features`: the columns of features; without names all other columns;
    - `user`: a column that says whose sample it is, for the partition `users`;
    - `standardise`: whether each feature is shifted and scaled to mean 0 and variance 1 over the training samples;
    - `test`: the share of the rows (of each user) that becomes the test set.

    Raises `SettingError` for a missing column, and `DataError`, naming the column, for a feature that is no number.
    """

    path: str
    label: str | tuple[str, ...]
    features: tuple[str, ...] = ()
    user: str = ""
    standardise: bool = False
    test: float = 0.2

    def __post_init__(self) -> None:
        check(self.path != "", "Table.path", self.path, "must be a CSV or Parquet file")
        check(len(self.label) > 0, "Table.label", self.label, "must name the column of labels")
        check(0 <= self.test < 1, "Table.test", self.test, "must be at least 0 and below 1")

    def load(self, seed: int = 0) -> Source:
        """The samples; `seed` decides which of them become the test set."""
        return self.of(_read(Path(self.path).expanduser()), seed)

    def of(self, frame: Any, seed: int = 0) -> Source:
        """The samples of a pandas frame, with the columns of these settings."""
        labels = (self.label,) if isinstance(self.label, str) else self.label
        used = (*labels, *([self.user] if self.user else []), *self.features)
        unknown = [name for name in used if name not in frame.columns]
        right = f"there is no such column; there are {', '.join(map(str, frame.columns))}"
        check(not unknown, "Table", unknown, right)
        names = self.features or tuple(name for name in frame.columns if name not in used)
        check(len(names) > 0, "Table.features", self.features, "there is no column besides labels and users")
        check(len(frame) > 0, "Table.path", self.path, "holds no row")
        x = np.stack([_column(frame, name) for name in names], axis=1)
        y, classes, label_names = _labels(frame, labels)
        _, user = np.unique(frame[self.user].astype(str), return_inverse=True) if self.user else (None, None)
        samples = Samples(torch.from_numpy(x), y, user=None if user is None else torch.from_numpy(user))
        train, test = hold_out(samples, self.test, seed)
        if self.standardise:
            train, test = _standardised(train, test)
        return Source(train, test, classes, PLAIN, label_names)


def _read(path: Path) -> Any:
    with library("pandas", "tables", "fedsash[data]"):
        import pandas
    check(path.is_file(), "Table.path", str(path), "there is no such file")
    try:
        return pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} can't be read: {one_line(error)}") from error


def _column(frame: Any, name: str) -> Any:
    values = frame[name]
    if values.dtype.kind not in "biuf":
        raise DataError(f"column {name!r} holds {values.dtype}, no numbers: encode it, or name other features")
    missing = values.isna().to_numpy()
    if missing.any():
        raise DataError(f"column {name!r}, row {int(missing.argmax())}: a value is missing: fill or drop it")
    return values.to_numpy(dtype=np.float64)


def _labels(frame: Any, names: tuple[str, ...]) -> tuple[Tensor, int, tuple[str, ...]]:
    """Labels, the number of classes (0: none) and the classes' names."""
    if len(names) > 1:
        columns = [frame[name] for name in names]
        whole = all(column.dtype.kind in "biu" for column in columns)
        y = np.stack([_column(frame, name) for name in names], axis=1)
        return (torch.from_numpy(y.astype(np.int64)), len(names), names) if whole else (torch.from_numpy(y), 0, ())
    column = frame[names[0]]
    if column.isna().any():
        raise DataError(f"column {names[0]!r}, row {int(column.isna().to_numpy().argmax())}: the label is missing")
    if column.dtype.kind == "f":
        return torch.from_numpy(column.to_numpy(dtype=np.float64)), 0, ()
    if column.dtype.kind in "biu":
        y = column.to_numpy(dtype=np.int64)
        return torch.from_numpy(y), 1 + int(y.max()), ()
    known, y = np.unique(column.astype(str), return_inverse=True)
    return torch.from_numpy(y), len(known), tuple(map(str, known))


def _standardised(train: Samples, test: Samples | None) -> tuple[Samples, Samples | None]:
    assert isinstance(train.x, Tensor)
    mean, std = train.x.mean(0), train.x.std(0, correction=0)
    std = torch.where(std > 0, std, 1.0)

    def scaled(samples: Samples) -> Samples:
        assert isinstance(samples.x, Tensor)
        return Samples((samples.x - mean) / std, samples.y, user=samples.user)

    return scaled(train), None if test is None else scaled(test)
