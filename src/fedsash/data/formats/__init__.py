"""The usual file formats of image data sets. Each is a module with the functions of `splits.Form`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...basics.errors import SettingError, check
from . import folders, idx, leaf, listed, parquet, pickles
from .memory import UNPACKED
from .splits import Files, Form, ImageSplits

FORMS: dict[str, Form] = {
    "idx": idx,
    "pickles": pickles,
    "leaf": leaf,
    "parquet": parquet,
    "listed": listed,
    "folders": folders,
}
"""The forms in the order in which they are tried. Only the last one would also accept folders of another form."""


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set, and their form."""

    form: Form
    folder: Path
    files: Files

    def read(self, columns: Mapping[str, str | None], unpacked: float = UNPACKED) -> ImageSplits:
        """The content of the files. A packed file may take `unpacked` GB of memory."""
        return self.form.read(self.folder, self.files, columns, unpacked)


def find(path: str, splits: Sequence[str]) -> DatasetFiles:
    """The files of each split that exists: of a folder in any form, or of a data set on the hub.

    Raises `SettingError` if there is no such folder, if it holds no readable data or no first split, or if the hub does
    not give the data set.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        is_path = path.startswith((".", "~")) or folder.is_absolute() or path.count("/") > 1
        check(not is_path, "path", path, "there is no such folder")
        return DatasetFiles(parquet, folder, parquet.hub(path, splits))
    folder = folder.resolve()
    form = next((form for form in FORMS.values() if form.matches(folder)), None)
    if form is None:
        right = "must hold train.parquet, train-images-idx3-ubyte, data_batch_1, all_data_0.json or images in folders"
        raise SettingError("", "path", str(folder), f"{right}; it holds no data that can be read")
    return DatasetFiles(form, folder, form.files(folder, splits))
