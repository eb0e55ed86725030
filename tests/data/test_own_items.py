"""Data sets of one's own whose items are not alike, and tensors that are no numbers as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from fedsash.data import IID, FederatedData, Images, NpyFiles
from fedsash.settings.errors import DataError, FedsashError, SettingError
from support.forms import write_idx

A = np.zeros(2)
B = np.ones(3)
BYTES = np.zeros(2, np.uint8)


@pytest.mark.parametrize(
    ("datasets", "line"),
    [
        ([[{"a": A, "y": 1}], [{"b": A, "y": 1}]], "client 1 has items of another form than the first"),
        ([[(A, 1)], [(B, 0)]], "client 1 has items of another form than the first"),
        ({"here": [(A, 1)], "there": [({"a": A}, 1)]}, "client 'there' has items of another form than the first"),
        ([[{"a": A, "y": 1}, {"y": 1}]], "datasets[0][1]: has the inputs ['y'], and the first has ['a', 'y']"),
        (
            {"b": [(BYTES, 1)], "f": [(A, 1)]},
            "client 'f': x has floating-point numbers, and that of client 'b' bytes from 0 to 255: give all",
        ),
        ([[((A, A), 1)], [((A, BYTES), 1)]], "client 0: x[1] has floating-point numbers, and that of client 1 bytes"),
        ([[({"a": A}, 1)], [({"a": BYTES}, 1)]], "client 0: a has floating-point numbers, and that of client 1 bytes"),
        ([[(BYTES, 1), (A, 1)]], "datasets[0][1]: x has floating-point numbers, and that of datasets[0][0] bytes"),
        ([[({"a": A}, 1), (A, 1)]], "datasets[0][1]: has the inputs None, and the first has ['a']"),
        ([[((A, A), 1), ((A,), 1)]], "datasets[0][1]: has the inputs 1, and the first has 2"),
    ],
)
def test_items_of_another_form_are_named(datasets: Any, line: str) -> None:
    with pytest.raises(DataError) as error:
        FederatedData.from_datasets(datasets)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_test_set_needs_no_users_and_its_items_are_named_as_its_own() -> None:
    train = [{"a": A, "y": i, "who": f"user {i}"} for i in (0, 1)]
    data = FederatedData.from_datasets(Subset(train, [0, 1]), users="who", test=[{"a": A, "y": 0}])
    assert data.test is not None and data.client_names == ("user 0", "user 1")
    for test, line in (([(A, 0), (B, 0)], r"test\[1\]: x has the shape"), ([{"a": A}], "items of test have a")):
        with pytest.raises(FedsashError, match=line):
            FederatedData.from_datasets([[(A, 1)]], test=test)


@pytest.mark.parametrize(
    ("x", "line"),
    [
        (torch.tensor([[0.7 + 1j, 2.9]] * 4), "must be real numbers"),
        (torch.eye(4).to_sparse(), "must be a dense tensor: use to_dense()"),
    ],
)
def test_complex_and_sparse_tensors_are_refused(x: torch.Tensor, line: str) -> None:
    with pytest.raises(SettingError) as error:
        FederatedData.from_arrays(x, [0, 1, 0, 1], partition=IID(2))
    assert line in str(error.value) and "\n" not in str(error.value)


def test_features_that_a_model_has_made_are_cut_off_from_it() -> None:
    x = torch.nn.Linear(2, 3)(torch.ones(4, 2))
    assert not FederatedData.from_arrays(x, [0, 1, 0, 1], partition=IID(2)).train.x.requires_grad


def test_labels_of_a_test_set_without_its_features_are_no_missing_test_set(tmp_path: Path) -> None:
    for name in ("x", "y", "y_test"):
        np.save(tmp_path / f"{name}.npy", np.arange(4) if name[0] == "y" else np.zeros((4, 2)))
    with pytest.raises(SettingError, match=r"must hold x_test\.npy"):
        NpyFiles(str(tmp_path)).load()


def test_a_split_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write_idx(tmp_path)
    with pytest.raises(SettingError, match=r"train_split = 'training': there is no such split in .*, only test"):
        Images(str(tmp_path), train_split="training").load()


@pytest.mark.parametrize("fraction", [-0.5, 1.0, 2.0])
def test_a_share_to_hold_out_is_one(fraction: float) -> None:
    data = FederatedData.from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], partition=IID(2))
    with pytest.raises(FedsashError, match="held_out"):
        data.hold_out(fraction, 0)
