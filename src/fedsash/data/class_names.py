"""The names of classes, which number the labels: they must be the same for all samples of a federation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from ..settings.errors import DataError, some


def class_names_of(dataset: Any) -> dict[str, list[str]]:
    """The names of the classes by column, as Hugging Face's data sets have them; those of torchvision have one list.

    Raises `DataError` for a `ConcatDataset` whose parts call them differently.
    """
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    if isinstance(dataset, ConcatDataset):
        parts = dataset.datasets
        return same_names((f"part {i} of a ConcatDataset", class_names_of(part)) for i, part in enumerate(parts))
    names_by_column = {}
    features = getattr(dataset, "features", None)
    if isinstance(features, Mapping):
        for column, feature in features.items():
            names_by_column[column] = getattr(feature, "names", None)
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, list):
        names_by_column["labels"] = classes
    return {column: list(map(str, names)) for column, names in names_by_column.items() if names}


def same_names(places: Iterable[tuple[str, Mapping[str, list[str]]]]) -> dict[str, list[str]]:
    """The names of the classes by column, which must be the same in each place that has some.

    Raises `DataError` if they are not: label 0 would be one class here and another one there.
    """
    names_by_column: dict[str, list[str]] = {}
    first_place: dict[str, str] = {}
    for place, columns in places:
        for column, names in columns.items():
            if column not in names_by_column:
                names_by_column[column] = names
                first_place[column] = place
            expected = names_by_column[column]
            if names != expected:
                what = f"{place} calls the classes of {column!r} {some(names)}"
                expectation = f"{first_place[column]} calls them {some(expected)}"
                raise DataError(f"{what}, and {expectation}: give all the same names in the same order")
    return names_by_column
