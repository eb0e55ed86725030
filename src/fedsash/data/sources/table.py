"""Tables: a file, a saved data set or a pandas frame, with columns of features, labels and perhaps users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...settings.errors import DataError, check
from ...settings.limits import Fraction, Gigabytes
from ...settings.setting import Accepts, default
from ..samples import Samples, Scales
from ..source import NamedDataset, Source, hold_out
from ..transform import PLAIN
from . import frames
from .formats.memory import UNPACKED


@dataclass(frozen=True)
class Table(NamedDataset, name="table"):
    """A table of samples, one in each row.

    Features are float64, or int64 if all their columns hold integers. Raises `SettingError` for a missing column, for
    one that is named twice and for one without a name, and `DataError`, naming the column and the row, for a feature
    that is no number and for a value that is missing.
    """

    path: str = ""
    """a `.csv`, `.tsv`, `.jsonl` or `.parquet` file, a folder with `train.csv` and `test.csv` and so on, or a folder
    that `save_to_disk` of `datasets` wrote"""
    label: Accepts[str | tuple[str, ...], list[str]] = default("label")
    """the column of labels, or several columns: texts and integers are classes, other numbers need a task"""
    features: Accepts[tuple[str, ...], list[str]] = default(())
    """the columns of features; without names all other columns"""
    user: str = ""
    """a column that says whose sample it is, for the partition `users`"""
    standardise: bool = False
    """whether each feature is shifted and scaled to mean 0 and variance 1 over the training samples"""
    test: Fraction = 0.2
    """the share of the rows (of each user), drawn at random, that becomes the test set, if the folder has no `test`"""
    _: KW_ONLY
    unpacked: Gigabytes = UNPACKED
    """how many GB of memory a packed file may take, as of `Images`"""

    def __post_init__(self) -> None:
        check(len(self.label) > 0, "Table.label", self.label, "must name the column of labels")
        check(self.user not in self._labels, "Table.user", self.user, "must be another column than the label")
        for place, columns in (("Table.label", self._labels), ("Table.features", self.features)):
            twice = next((name for name in columns if columns.count(name) > 1), None)
            check(twice is None, place, twice, "must be named once")
        given = next((name for name in self.features if name in self._given), None)
        check(given is None, "Table.features", given, "must not be a feature: it is the label or the user")

    def load(self, seed: int = 0) -> Source:
        """The samples; `seed` decides which of them become the test set."""
        check(self.path != "", "Table.path", self.path, "must be a file or a folder, such as data.csv")
        rows = frames.read(self.path, self._named, self.unpacked, "Table.path", rest=not self.features)
        return self.of(*rows, seed=seed)

    def of(self, frame: Any, test: Any = None, seed: int = 0) -> Source:
        """The samples of a pandas frame, and of a second one for testing, with the columns of these settings."""
        rows, train = frames.joined(frame, test, self._named, rest=not self.features)
        features = self.features or frames.others(list(rows.columns), self._given)
        check(len(features) > 0, "Table.features", self.features, "there is no column besides labels and users")
        x = np.stack([frames.column(rows, name) for name in features], axis=1)
        y, classes, label_names = frames.labels(rows, self._labels)
        user, user_names = frames.users(rows, self.user)
        samples = Samples(torch.from_numpy(x), y, user=user)
        first = torch.arange(len(rows)) < train
        kept, tested = hold_out(samples, self.test, seed) if test is None else (samples[first], samples[~first])
        scales: Scales = ()
        if self.standardise:
            kept, tested, scales = _standardised(kept, tested, features)
        source = Source(kept, tested, classes, PLAIN, label_names, user_names=user_names)
        return replace(source, feature_names=tuple(map(str, features)), feature_scales=scales)

    @property
    def _labels(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def _given(self) -> frames.ColumnNames:
        return dict.fromkeys(self._labels, "label") | ({self.user: "user"} if self.user else {})

    @property
    def _named(self) -> frames.ColumnNames:
        return self._given | dict.fromkeys(self.features, "features")


def _standardised(
    train: Samples, test: Samples | None, features: Sequence[str]
) -> tuple[Samples, Samples | None, Scales]:
    """Both, scaled by the training samples, and the mean and the deviation of each feature before.

    Raises `DataError` for numbers whose squares no float64 holds.
    """
    assert isinstance(train.x, Tensor)
    numbers = train.x.double()
    mean = numbers.mean(0)
    std = numbers.std(0, correction=0)
    std = torch.where(numbers.amax(0) > numbers.amin(0), std, 1.0)  # of equal numbers it may be a rounding error
    for name, fits in zip(features, (mean.isfinite() & std.isfinite() & (std > 0)).tolist(), strict=True):
        if not fits:
            right = "its numbers are too large or too small to be standardised: give them in another unit"
            raise DataError(f"column {name!r}: {right}")

    def scaled(samples: Samples) -> Samples:
        assert isinstance(samples.x, Tensor)
        return Samples((samples.x.double() - mean) / std, samples.y, user=samples.user)

    scales = tuple(zip(mean.tolist(), std.tolist(), strict=True))
    return scaled(train), None if test is None else scaled(test), scales
