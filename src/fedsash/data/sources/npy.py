"""Samples in NumPy's own files, which stay on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...settings.errors import DataError, check, one_line
from ...system.paths import plain_file, similar
from ...tasks import chosen_task
from .. import arrays
from ..samples import Samples
from ..source import NamedDataset, Source
from ..transform import PLAIN
from .formats.memory import damages


@dataclass(frozen=True)
class NpyFiles(NamedDataset, name="npy"):
    """NumPy's files in a folder, mapped into memory: the samples stay on the disk, however many they are.

    `x.npy` holds the features of all samples `[n, ...]`, or images as uint8 `[n, H, W]` or `[n, H, W, channels]`, and
    `y.npy` their labels. `users.npy` may name each sample's user, by numbers or texts. `x_test.npy` and `y_test.npy`
    are the test set; without them there is none. Files of other types than uint8, int64, bool and floating-point
    numbers are read into memory.

    Raises `SettingError` if `x.npy` or `y.npy` is missing, and `DataError` for a damaged file.
    """

    path: str
    """the folder"""

    def load(self, seed: int = 0) -> Source:
        """The samples; `seed` decides nothing."""
        folder = Path(self.path).expanduser()
        check(not folder.is_file(), "NpyFiles.path", self.path, "is a file, and must be a folder with x.npy and y.npy")
        check(folder.is_dir(), "NpyFiles.path", self.path, f"there is no such folder{similar(folder)}")
        train = _samples(folder, "")
        users = folder / "users.npy"
        user_names: tuple[str, ...] = ()
        if users.exists():
            user, user_names = arrays.user_numbers(_mapped(users), len(train))
            train = Samples(train.x, train.y, user=user)
        tested = any((folder / f"{name}_test.npy").exists() for name in "xy")
        test = _samples(folder, "_test") if tested else None
        task = chosen_task(None, train.y)
        classes = max(task.classes(samples.y) for samples in (train, test) if samples is not None)
        return Source(train, test, classes, PLAIN, user_names=user_names)


def _samples(folder: Path, ending: str) -> Samples:
    x, y = (_mapped(folder / f"{name}{ending}.npy") for name in "xy")
    return Samples(arrays.features(x), arrays.labels(y))


def _mapped(file: Path) -> Any:
    packed = next((f"; save each array of {other.name} by itself" for other in sorted(file.parent.glob("*.npz"))), "")
    check(file.exists(), "NpyFiles.path", str(file.parent), f"must hold {file.name}{packed}")
    with damages(file):
        try:
            found = np.load(plain_file(file), mmap_mode="r")
            if not isinstance(found, np.ndarray):
                raise ValueError("it is an archive of several arrays")
            return found
        except (ValueError, EOFError) as error:
            right = "must be a whole array of numbers, for users also of texts, as numpy.save writes it"
            raise DataError(f"{file} can't be read: it {right} ({one_line(error)})") from error
