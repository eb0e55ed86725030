"""Missing values that a type marks are refused with their place, on every way into the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.masked import masked_tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from fedsash.data.federated import FederatedData
from fedsash.settings.errors import DataError, SettingError

X = np.arange(8.0).reshape(4, 2)
Y = np.array([0, 1, 0, 1])
MASK = [[0, 0], [0, 1], [0, 0], [0, 0]]


def data(x: Any = X, y: Any = Y, **more: Any) -> FederatedData:
    return FederatedData.from_arrays(x, y, **({"clients": [[0, 1], [2, 3]]} | more))


def masked(values: Any, hidden: Any) -> Any:
    """A masked tensor of PyTorch, whose mask is true where there is a value."""
    return masked_tensor(torch.as_tensor(values), ~torch.as_tensor(hidden).bool())


def pandas(make: Callable[[Any], Any]) -> Any:
    return make(pytest.importorskip("pandas"))


def arrow(make: Callable[[Any], Any]) -> Any:
    return make(pytest.importorskip("pyarrow"))


MISSING: dict[str, tuple[Callable[[], Any], str]] = {
    "a masked feature": (lambda: data(np.ma.masked_array(X, mask=MASK)), r"x\[1, 1\] is missing"),
    "a masked whole number": (
        lambda: data(np.ma.masked_array(X.astype(int), mask=MASK)),
        r"x\[1, 1\] is missing.*1 of 8",
    ),
    "a masked label": (lambda: data(y=np.ma.masked_array(Y, mask=[0, 1, 0, 0])), r"y\[1\] is missing"),
    "a masked input by name": (lambda: data({"a": np.ma.masked_array(X, mask=MASK)}), r"x\['a'\]\[1, 1\] is missing"),
    "masked rows": (lambda: data(list(np.ma.masked_array(X, mask=MASK))), r"x\[1, 1\] is missing"),
    "rows of masked rows": (
        lambda: data([[np.ma.masked_array([1.0, 999.0], mask=[0, 1])]] * 4),
        r"x\[0, 0, 1\] is missing",
    ),
    "a masked number in a list": (lambda: data([[1.0, np.ma.masked], *X[1:].tolist()]), r"x\[0, 1\] is missing"),
    "a masked index of a client": (
        lambda: data(clients=[np.ma.masked_array([0, 1], mask=[0, 1]), [2, 3]]),
        r"FederatedData.clients\[0\]\[1\] is missing",
    ),
    "a masked user": (
        lambda: data(clients=None, users=np.ma.masked_array([0, 0, 1, 1], mask=[0, 1, 0, 0])),
        r"users\[1\] is missing",
    ),
    "a masked test sample": (lambda: data(test=(np.ma.masked_array(X, mask=MASK), Y)), r"x\[1, 1\] is missing"),
    "None in a list": (lambda: data([[1, 2], [None, 3], [1, 2], [3, 4]]), r"x\[1, 0\] is missing"),
    "None among labels": (lambda: data(y=[0, None, 1, 0]), r"y\[1\] is missing"),
    "NaT": (lambda: data(np.array([["2020-01-01", "NaT"]] * 4, dtype="datetime64[D]")), r"x\[0, 1\] is missing"),
    "pandas' frame": (
        lambda: data(pandas(lambda pd: pd.DataFrame({"a": pd.array([1, None, 3, 4], dtype="Int64"), "b": Y}))),
        r"x\[1, 0\] is missing",
    ),
    "pandas' labels": (
        lambda: data(y=pandas(lambda pd: pd.Series(pd.array([1, None, 0, 1], dtype="Int64")))),
        r"y\[1\] is missing",
    ),
    "pandas' truth values": (
        lambda: data(y=pandas(lambda pd: pd.array([True, None, False, True], dtype="boolean"))),
        r"y\[1\] is missing",
    ),
    "Arrow's feature": (
        lambda: data({"a": arrow(lambda pa: pa.array([1, None, 3, 4]))}),
        r"x\['a'\]\[1\] is missing",
    ),
    "Arrow's column in pieces": (
        lambda: data(y=arrow(lambda pa: pa.chunked_array([[0, 1], [None, 1]]))),
        r"y\[2\] is missing",
    ),
    "Arrow's table": (
        lambda: data(arrow(lambda pa: pa.table({"a": [1, 2, 3, 4], "b": [1, None, 3, 4]}))),
        r"x\[1, 1\] is missing",
    ),
    "an item of a data set": (
        lambda: FederatedData.from_datasets([[(row, 0) for row in np.ma.masked_array(X, mask=MASK)]]),
        r"datasets\[0\]\[1\]: x\[1\] is missing",
    ),
    "a masked tensor": (lambda: data(masked(X, MASK)), r"x\[1, 1\] is missing.*1 of 8"),
    "a masked tensor of labels": (lambda: data(y=masked(Y, [0, 1, 0, 0])), r"y\[1\] is missing"),
    "a masked tensor by name": (lambda: data({"a": masked(X, MASK)}), r"x\['a'\]\[1, 1\] is missing"),
    "rows of masked tensors": (lambda: data([*map(masked, X, MASK)]), r"x\[1, 1\] is missing"),
    "a masked tensor of users": (
        lambda: data(clients=None, users=masked(Y, [0, 1, 0, 0])),
        r"users\[1\] is missing",
    ),
    "a masked tensor of indices": (
        lambda: data(clients=[masked([0, 1], [0, 1]), [2, 3]]),
        r"FederatedData.clients\[0\]\[1\] is missing",
    ),
    "a masked tensor in a data set": (
        lambda: FederatedData.from_datasets([[(row, 0) for row in map(masked, X, MASK)]]),
        r"datasets\[0\]\[1\]: x\[1\] is missing",
    ),
    "pandas' arrays in a column": (
        lambda: data(pandas(lambda pd: pd.Series([[1.0, 2.0], [None, 2.0], [1.0, 2.0], [1.0, 2.0]]))),
        r"x\[1, 0\] is missing.*1 of 8",
    ),
    "Arrow's lists": (
        lambda: data(arrow(lambda pa: pa.array([[1, 2], [3, None], [1, 2], [1, 2]]))),
        r"x\[1, 1\] is missing.*1 of 8",
    ),
    "Arrow's lists in a table": (
        lambda: data(arrow(lambda pa: pa.table({"a": Y, "b": [[1, 2], [1, 2], [1, 2], [1, None]]}))),
        r"x\[3, 1, 1\] is missing",
    ),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_value_is_refused_with_its_place(kind: str) -> None:
    build, line = MISSING[kind]
    with pytest.raises(DataError, match=line):
        build()


def test_masked_arrays_without_a_masked_value_are_taken() -> None:
    taken = data(np.ma.masked_array(X, mask=False), np.ma.masked_array(Y, mask=[0, 0, 0, 0]))
    assert torch.equal(taken.train.x, torch.from_numpy(X))


@pytest.mark.parametrize("x", [masked(X, np.zeros((4, 2))), [masked(row, [0, 0]) for row in X]])
def test_masked_tensors_without_a_masked_value_are_taken(x: Any) -> None:
    taken = data(x, masked(Y, [0, 0, 0, 0]), clients=None, users=masked(Y, [0, 0, 0, 0]))
    assert torch.equal(taken.train.x, torch.from_numpy(X))
    assert [client.tolist() for client in taken.clients] == [[0, 2], [1, 3]]
    assert type(taken.train.x) is type(taken.train.y) is torch.Tensor


def test_a_column_of_arrays_gets_the_way_to_one_array() -> None:
    column = np.empty(4, dtype=object)
    column[:] = list(X)
    with pytest.raises(SettingError, match=r"x = 'object \[4\]': must be numbers: make one array"):
        data(column)


@pytest.mark.parametrize(("users", "value"), [([1.0, np.nan, 2.0, 2.0], "nan"), (["a", None, "b", "b"], "None")])
def test_a_user_without_a_name_is_shown_as_given(users: Any, value: str) -> None:
    with pytest.raises(SettingError, match=rf"users\[1\] = {value}: must name a user for each of 4 samples"):
        data(clients=None, users=users)


class Items(Dataset[Any]):
    """Items of which the eighth is odd, or can't be read."""

    def __init__(self, odd: Any) -> None:
        self.odd = odd

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index == 7 and isinstance(self.odd, Exception):
            raise self.odd
        return self.odd if index == 7 else (torch.zeros(3), index % 2)


@pytest.mark.parametrize(
    ("odd", "line"),
    [
        (None, r"dataset\[7\] is None: must be \(x, y\) or a dict"),
        ((torch.zeros(3),), r"dataset\[7\] is a tuple of 1: must be \(x, y\) or a dict"),
        ((torch.zeros(3), 1, 2.0), r"dataset\[7\] is a tuple of 3: must be \(x, y\) or a dict"),
        ({"x": torch.zeros(3), "y": 1}, r"dataset\[7\] is a dict, and the first item is a tuple of 2"),
        (OSError("no such picture: cat.png"), r"dataset\[7\] can't be read: OSError: no such picture: cat.png"),
        (TypeError("my own bug"), r"dataset\[7\] can't be read: TypeError: my own bug"),
        ((torch.zeros(2), 1), r"dataset\[7\]: x has the shape \[2\], and the first has \[3\]"),
    ],
)
def test_an_odd_item_is_named(odd: Any, line: str) -> None:
    with pytest.raises(DataError, match=line):
        FederatedData.from_datasets(Items(odd), partition="iid")
    good = TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(DataError, match=line.replace("dataset", r"datasets\['Bern'\]", 1)):
        FederatedData.from_datasets({"Basel": good, "Bern": Items(odd)})


def test_a_client_without_samples_is_named() -> None:
    good = TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(DataError, match=r"datasets\['Bern'\] must hold at least one sample"):
        FederatedData.from_datasets({"Basel": good, "Bern": Subset(good, [])})
