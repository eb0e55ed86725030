"""Tables: a file, a saved data set or a pandas frame, with columns of features, labels and perhaps users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...settings.errors import DataError, check
from ...settings.limits import Fraction, Gigabytes
from ...settings.setting import Accepts, default
from ..samples import Samples, Scales
from ..source import NamedDataset, Source, hold_out, hold_out_latest
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
    time: str = ""
    """a column of numbers or ISO dates, no feature unless `features` names it: the test set is the latest rows, none
    drawn at random"""
    unpacked: Gigabytes = UNPACKED
    """how many GB of memory a packed file may take, as of `Images`"""

    def __post_init__(self) -> None:
        check(len(self.label) > 0, "Table.label", self.label, "must name the column of labels")
        check(self.user not in self._labels, "Table.user", self.user, "must be another column than the label")
        check(self.time not in self._labels_and_user, "Table.time", self.time, "must not be the label or the user")
        for place, columns in (("Table.label", self._labels), ("Table.features", self.features)):
            for name in columns:
                check(columns.count(name) == 1, place, name, "must be named once")
        for name in self.features:
            requirement = "must not be a feature: it is the label or the user"
            check(name not in self._labels_and_user, "Table.features", name, requirement)

    def load(self, seed: int = 0) -> Source:
        """The samples; `seed` decides which of them become the test set."""
        check(self.path != "", "Table.path", self.path, "must be a file or a folder, such as data.csv")
        frame, test = frames.read(self.path, self._named, self.unpacked, "Table.path", rest=not self.features)
        return self.of(frame, test, seed)

    def of(self, frame: Any, test: Any = None, seed: int = 0) -> Source:
        """The samples of a pandas frame, and of a second one for testing, with the columns of these settings."""
        requirement = "must be left out: the test set is given"
        check(test is None or not self.time, "Table.time", self.time, requirement)
        rows, train_count = frames.joined(frame, test, self._named, rest=not self.features)
        features = self.features or frames.others(list(rows.columns), [*self._labels_and_user, self.time])
        check(len(features) > 0, "Table.features", self.features, "there is no column besides labels and users")
        x = np.stack([frames.column(rows, name) for name in features], axis=1)
        y, classes, label_names = frames.labels(rows, self._labels)
        user, user_names = frames.users(rows, self.user)
        samples = Samples(torch.from_numpy(x), y, user=user)
        if self.time:
            times = frames.times(rows, self.time)
            train_samples, test_samples = hold_out_latest(samples, self.test, times)
        elif test is None:
            train_samples, test_samples = hold_out(samples, self.test, seed)
        else:
            is_train = torch.arange(len(rows)) < train_count
            train_samples = samples[is_train]
            test_samples = samples[~is_train]
        scales: Scales = ()
        if self.standardise:
            train_samples, test_samples, scales = _standardised(train_samples, test_samples, features)
        return Source(
            train_samples,
            test_samples,
            classes,
            PLAIN,
            label_names,
            user_names=user_names,
            feature_names=tuple(map(str, features)),
            feature_scales=scales,
        )

    @property
    def _labels(self) -> tuple[str, ...]:
        if isinstance(self.label, str):
            return (self.label,)
        return self.label

    @property
    def _labels_and_user(self) -> frames.ColumnNames:
        columns = dict.fromkeys(self._labels, "label")
        if self.user:
            columns[self.user] = "user"
        return columns

    @property
    def _named(self) -> frames.ColumnNames:
        named = self._labels_and_user | dict.fromkeys(self.features, "features")
        if self.time:
            named.setdefault(self.time, "time")
        return named


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
    is_usable = mean.isfinite() & std.isfinite() & (std > 0)
    for name, usable in zip(features, is_usable.tolist(), strict=True):
        if not usable:
            cure = "its numbers are too large or too small to be standardised: give them in another unit"
            raise DataError(f"column {name!r}: {cure}")

    def scaled(samples: Samples) -> Samples:
        assert isinstance(samples.x, Tensor)
        return Samples((samples.x.double() - mean) / std, samples.y, user=samples.user)

    if test is not None:
        test = scaled(test)
    return scaled(train), test, tuple(zip(mean.tolist(), std.tolist(), strict=True))
