"""Samples in NumPy's own files, which stay on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...settings.errors import DataError, SettingError, check, one_line
from ...system.paths import plain_file, similar
from .. import arrays
from ..samples import Samples
from ..source import NamedDataset, Source
from ..transform import PLAIN
from .formats.memory import reading


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
        test = None
        if (folder / "x_test.npy").exists() or (folder / "y_test.npy").exists():
            test = _samples(folder, "_test")
        return Source(train, test, 0, PLAIN, user_names=user_names)  # the task counts the classes, once it is known


def _samples(folder: Path, ending: str) -> Samples:
    x = _mapped(folder / f"x{ending}.npy")
    y = _mapped(folder / f"y{ending}.npy")
    return Samples(arrays.features(x), arrays.labels(y))


def _mapped(file: Path) -> Any:
    """The array in a file, mapped into memory. Raises `SettingError` if it is missing, and `DataError` for damage."""
    if not file.exists():
        archive = next(iter(sorted(file.parent.glob("*.npz"))), None)
        cure = ""
        if archive is not None:
            cure = f"; save each array of {archive.name} by itself"
        raise SettingError("NpyFiles", "path", str(file.parent), f"must hold {file.name}{cure}")
    with reading(file):
        try:
            array = np.load(plain_file(file), mmap_mode="r")
            if not isinstance(array, np.ndarray):
                raise ValueError("it is an archive of several arrays")
            return array
        except (ValueError, EOFError) as error:
            requirement = "must be a whole array of numbers, for users also of texts, as numpy.save writes it"
            raise DataError(f"{file} can't be read: it {requirement} ({one_line(error)})") from error
