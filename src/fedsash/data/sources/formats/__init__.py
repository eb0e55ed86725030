"""The usual file formats of image data sets. Each is a module with the functions of `splits.FileFormat`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....settings.errors import SettingError, check
from ....system.paths import similar
from . import folders, idx, leaf, listed, parquet, pickles, saved
from .memory import UNPACKED
from .splits import FileFormat, Files, ImageSplits

FORMATS: dict[str, FileFormat] = {
    "saved": saved,
    "idx": idx,
    "pickles": pickles,
    "leaf": leaf,
    "parquet": parquet,
    "listed": listed,
    "folders": folders,
}
"""The formats in the order in which they are tried. Only the last one would also accept folders of another format."""

HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""The name of a data set on the hub."""


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set, and their format."""

    file_format: FileFormat
    folder: Path
    files: Files

    @property
    def beside(self) -> list[Path]:
        """The files that say more of these: the classes of images, or the names of classes."""
        beside = getattr(self.file_format, "beside", None)
        if beside is None:
            return []
        return list(beside(self.folder, self.files))

    def check_named(self, columns: Mapping[str, str | None]) -> None:
        """Raise `SettingError` if these files have no named columns and `columns` names one."""
        if self.file_format in (parquet, saved):
            return
        for key, option in parquet.OPTIONS.items():
            requirement = f"the files in {self.folder} have no named columns; leave it out"
            check(columns.get(key) is None, option, columns.get(key), requirement)

    def read(self, columns: Mapping[str, str | None], unpacked: float = UNPACKED) -> ImageSplits:
        """The content of the files. A packed file may take `unpacked` GB of memory."""
        return self.file_format.read(self.folder, self.files, columns, unpacked)


def find(path: str, splits: Sequence[str]) -> DatasetFiles:
    """The files of each split that exists: of a folder in any format, or of a data set on the hub.

    The hub is asked only for names such as `owner/name`, where `owner` is no folder here.

    Raises `SettingError` if there is no such folder, if it holds no readable data or no first split, or if the hub does
    not give the data set.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        check(not folder.exists(), "path", path, "is a file, and must be a folder")
        requirement = f"there is no such folder{similar(folder)} (on the hub, names have the form owner/name)"
        check(HUB.fullmatch(path) is not None and not folder.parent.exists(), "path", path, requirement)
        parquet.check_hub(path)
        return DatasetFiles(parquet, folder, parquet.hub(path, splits))
    folder = folder.resolve()
    for file_format in FORMATS.values():
        if file_format.matches(folder):
            return DatasetFiles(file_format, folder, file_format.files(folder, splits))
    requirement = "must hold train.parquet, train-images-idx3-ubyte, data_batch_1, all_data_0.json or images in folders"
    raise SettingError("", "path", str(folder), f"{requirement}; it holds no data that can be read")
