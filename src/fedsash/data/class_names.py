"""The names of classes, which number the labels: they must be the same for all samples of a federation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..settings.errors import DataError, some


def of_data_set(dataset: Any) -> dict[str, list[str]]:
    """The names of the classes by column, as Hugging Face's data sets have them; those of torchvision have one list."""
    features = getattr(dataset, "features", None)
    classes = getattr(dataset, "classes", None)
    kinds = features if isinstance(features, Mapping) else {}
    known = {name: getattr(kind, "names", None) for name, kind in kinds.items()}
    known |= {"labels": classes} if isinstance(classes, list) else {}
    return {name: [str(one) for one in names] for name, names in known.items() if names}


def same_names(found: Iterable[tuple[str, Mapping[str, list[str]]]]) -> dict[str, list[str]]:
    """The names of the classes by column, which must be the same in each place that has some.

    Raises `DataError` if they are not: label 0 would be one class here and another one there.
    """
    known: dict[str, tuple[str, list[str]]] = {}
    for where, names in found:
        for column, own in names.items():
            first, same = known.setdefault(column, (where, own))
            if own != same:
                said = f"{where} calls the classes of {column!r} {some(own)}, and {first} calls them {some(same)}"
                raise DataError(f"{said}: give all the same names in the same order")
    return {column: names for column, (_, names) in known.items()}
