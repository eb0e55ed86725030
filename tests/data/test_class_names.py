"""Classes that are called differently in two places: label 0 would be one class here and another one there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from fedsash import FederatedData
from fedsash.data import Images, Table
from fedsash.errors import DataError
from support.libraries import Library

datasets = Library("datasets")

from support.parquets import pixels, write  # noqa: E402

PETS = ["cat", "dog"]
SWAPPED = ["dog", "cat"]
LINE = r"calls the classes of 'label' dog, cat, and .* calls them cat, dog: give all the same names in the same order"


def images(folder: Path, file: str, names: list[str]) -> None:
    write(folder / file, pixels(4), names, label=[0, 1, 0, 1])


def rows(names: list[str] | None = None) -> Any:
    kind = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
    columns = {"size": [1.0, 2.0], "label": [0, 1]}
    return datasets.Dataset.from_dict(columns, datasets.Features({"size": datasets.Value("float64"), "label": kind}))


@pytest.mark.parametrize("other", ["test.parquet", "train-00001-of-00002.parquet"])
def test_splits_and_pieces_of_images_call_their_classes_alike(other: str, tmp_path: Path) -> None:
    first = "train.parquet" if other.startswith("test") else "train-00000-of-00002.parquet"
    images(tmp_path, first, PETS)
    images(tmp_path, other, PETS)
    assert Images(str(tmp_path), test=0).load().label_names == ("cat", "dog")
    images(tmp_path, other, SWAPPED)
    with pytest.raises(DataError, match=rf"{other} {LINE}"):
        Images(str(tmp_path), test=0).load()


def test_tables_call_them_alike_and_a_split_may_have_no_names(tmp_path: Path) -> None:
    for split, names in {"train": PETS, "test": None}.items():
        rows(names).to_parquet(tmp_path / f"{split}.parquet")
    assert Table(str(tmp_path), label="label").load().label_names == ("cat", "dog")
    rows(SWAPPED).to_parquet(tmp_path / "test.parquet")
    with pytest.raises(DataError, match=rf"test\.parquet {LINE}"):
        Table(str(tmp_path), label="label").load()


def test_data_sets_in_memory_call_them_alike() -> None:
    assert FederatedData.from_datasets(rows(PETS), [[0, 1]], test=rows(PETS)).classes == 2
    with pytest.raises(DataError, match=f"the one for testing {LINE}"):
        FederatedData.from_datasets(rows(PETS), [[0, 1]], test=rows(SWAPPED))
    with pytest.raises(DataError, match=f"the data set of client 'b' {LINE}"):
        FederatedData.from_datasets({"a": rows(PETS), "b": rows(SWAPPED)})
    joined: ConcatDataset[Any] = ConcatDataset([rows(PETS), rows(PETS)])
    with pytest.raises(DataError, match=f"the one for testing {LINE}"):
        FederatedData.from_datasets(Subset(joined, [3, 0]), [[0, 1]], test=Subset(rows(SWAPPED), [1]))
    with pytest.raises(DataError, match=f"part 1 of a ConcatDataset {LINE}"):
        FederatedData.from_datasets([Subset(ConcatDataset([rows(PETS), rows(SWAPPED)]), [0])])


def test_a_data_set_with_features_that_are_no_kinds_is_read() -> None:
    class Own(TensorDataset):
        features = torch.ones(2, 3)
        classes = 2

    data = FederatedData.from_datasets(Own(torch.ones(2, 3), torch.tensor([0, 1])), [[0, 1]])
    assert np.array_equal(data.train.y.numpy(), [0, 1])
