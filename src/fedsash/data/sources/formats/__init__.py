"""The usual file formats of image data sets. Each is a module with the functions of `splits.Form`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....settings.errors import SettingError, check
from ....system.paths import similar
from . import folders, idx, leaf, listed, parquet, pickles, saved
from .memory import UNPACKED
from .splits import Files, Form, ImageSplits

FORMS: dict[str, Form] = {
    "saved": saved,
    "idx": idx,
    "pickles": pickles,
    "leaf": leaf,
    "parquet": parquet,
    "listed": listed,
    "folders": folders,
}
"""The forms in the order in which they are tried. Only the last one would also accept folders of another form."""

HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""The name of a data set on the hub."""


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set, and their form."""

    form: Form
    folder: Path
    files: Files

    @property
    def beside(self) -> list[Path]:
        """The files that say more of these: the classes of images, or the names of classes."""
        found = getattr(self.form, "beside", None)
        return [] if found is None else list(found(self.folder, self.files))

    def check_named(self, columns: Mapping[str, str | None]) -> None:
        """Raise `SettingError` if these files have no named columns and `columns` names one."""
        if self.form not in (parquet, saved):
            for key, option in parquet.OPTIONS.items():
                right = f"the files in {self.folder} have no named columns; leave it out"
                check(columns.get(key) is None, option, columns.get(key), right)

    def read(self, columns: Mapping[str, str | None], unpacked: float = UNPACKED) -> ImageSplits:
        """The content of the files. A packed file may take `unpacked` GB of memory."""
        return self.form.read(self.folder, self.files, columns, unpacked)


def find(path: str, splits: Sequence[str]) -> DatasetFiles:
    """The files of each split that exists: of a folder in any form, or of a data set on the hub.

    The hub is asked only for names such as `owner/name`, where `owner` is no folder here.

    Raises `SettingError` if there is no such folder, if it holds no readable data or no first split, or if the hub does
    not give the data set.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        check(not folder.exists(), "path", path, "is a file, and must be a folder")
        right = f"there is no such folder{similar(folder)} (on the hub, names have the form owner/name)"
        check(HUB.fullmatch(path) is not None and not folder.parent.exists(), "path", path, right)
        parquet.check_hub(path)
        return DatasetFiles(parquet, folder, parquet.hub(path, splits))
    folder = folder.resolve()
    form = next((form for form in FORMS.values() if form.matches(folder)), None)
    if form is None:
        right = "must hold train.parquet, train-images-idx3-ubyte, data_batch_1, all_data_0.json or images in folders"
        raise SettingError("", "path", str(folder), f"{right}; it holds no data that can be read")
    return DatasetFiles(form, folder, form.files(folder, splits))
