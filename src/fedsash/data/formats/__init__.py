"""The forms in which people have image data sets, each a module with the functions of `table.Form`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...basics.errors import check
from . import folders, idx, leaf, listed, parquet, pickles
from .splits import Files, Form, ImageSplits

FORMS: dict[str, Form] = {
    "idx": idx,
    "pickles": pickles,
    "leaf": leaf,
    "parquet": parquet,
    "listed": listed,
    "folders": folders,
}
"""In the order in which a folder is tried; only the last would also take what others read."""


@dataclass(frozen=True)
class DatasetFiles:
    """A data set's files, and the form in which they are."""

    form: Form
    folder: Path
    files: Files

    def read(self, columns: Mapping[str, str | None]) -> ImageSplits:
        """What they hold."""
        return self.form.read(self.folder, self.files, columns)


def find(path: str, splits: Sequence[str]) -> DatasetFiles:
    """The files of each of the splits that is there: of a folder in any form, or of a data set on the hub.

    Raises `ValueError`, in one line that says what would be right, if there is no such folder, nothing in it that can
    be read or no first split, or if the hub does not give the data set.
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
        raise ValueError(f"path = {str(folder)!r}: {right}; there is nothing that can be read")
    return DatasetFiles(form, folder, form.files(folder, splits))
