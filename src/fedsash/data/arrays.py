"""From what users have in memory to samples: arrays, tensors, lists, dicts of them, and data sets of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.arrays import Ints
from ..basics.errors import DataError, check
from .inputs import Inputs


def features(values: Any) -> Tensor | Inputs:
    """Samples' features `[n, ...]`. A dict is passed to the model by name, a tuple by position."""
    if isinstance(values, Mapping):
        return Inputs({name: numbers(value, f"x[{name!r}]") for name, value in values.items()})
    if isinstance(values, tuple):
        return Inputs([numbers(value, f"x[{i}]") for i, value in enumerate(values)])
    x = numbers(values, "x")
    return x.unsqueeze(-1) if x.dtype == torch.uint8 and x.ndim == 3 else x


def labels(values: Any) -> Tensor:
    """Labels `[n, ...]`: int64, or of their own floating-point type."""
    y = numbers(values, "y")
    return y if y.is_floating_point() else y.to(torch.int64)


def numbers(values: Any, name: str) -> Tensor:
    """A tensor of images (uint8), of floating-point numbers, of int64, or of bool.

    It shares the memory of NumPy arrays where possible. Raises `SettingError` for text and other objects.
    """
    if not isinstance(values, Tensor):
        array = np.require(values, requirements=["C", "W"])
        right = "must be numbers: give categories as integers, and text as token ids (see fedsash.data.from_texts)"
        check(array.dtype.kind in "biuf", name, f"{array.dtype} {list(array.shape)}", right)
        values = torch.from_numpy(array)
    found: Tensor = values
    kept = found.is_floating_point() or found.dtype in (torch.uint8, torch.bool)
    return found if kept else found.to(torch.int64)


def indices(clients: Any, users: Any, n: int) -> Sequence[Any]:
    """The indices of each client's samples: `clients` as they are, or one client for each of the `users` `[n]`.

    Raises `SettingError` unless exactly one of them is given, and for a list that looks like the other one.
    """
    check(
        (clients is None) != (users is None), "clients", clients, "give the clients' indices, or users=, or partition="
    )
    if users is None:
        return _checked(clients, n)
    column = np.asarray(users)
    check(
        column.shape == (n,),
        "users",
        f"{column.dtype} {list(column.shape)}",
        f"must name a user for each of {n} samples",
    )
    _, number = np.unique(column, return_inverse=True)
    order: Ints = np.argsort(number, kind="stable")
    return np.split(order, np.bincount(number).cumsum()[:-1])


def _checked(clients: Any, n: int) -> Sequence[Any]:
    if isinstance(clients, Mapping):
        clients = list(clients.values())
    right = "must be a list with the indices of each client's samples; for a column of users give users="
    one_each = isinstance(clients, np.ndarray | Tensor) and clients.ndim == 1
    plain = isinstance(clients, Sequence) and not isinstance(clients, str)
    text = plain and len(clients) > 0 and isinstance(clients[0], str | int | np.integer)
    check(not one_each and not text and (plain or hasattr(clients, "__len__")), "clients", clients, right)
    found: Sequence[Any] = clients
    return found


def of_dataset(dataset: Any) -> tuple[Any, NDArray[Any]]:
    """`x` and `y` of a PyTorch data set whose items are `(x, y)`, or dicts with `labels`.

    Raises `DataError`, naming the item, if items differ in shape.
    """
    try:
        items = [dataset[i] for i in range(len(dataset))]
    except TypeError as error:
        raise DataError(f"{type(dataset).__name__} has no length: only data sets that can be indexed fit") from error
    check(len(items) > 0, "dataset", dataset, "must hold at least one sample")
    if isinstance(items[0], Mapping):
        name = next((key for key in ("labels", "label", "y") if key in items[0]), None)
        check(name is not None, "dataset", list(items[0]), "must have labels, label or y among its keys")
        parts = {key: _stacked([item[key] for item in items], key) for key in items[0] if key != name}
        x: Any = next(iter(parts.values())) if len(parts) == 1 else parts
        return x, _stacked([item[name] for item in items], str(name))
    right = "must give (x, y) for each sample"
    check(isinstance(items[0], tuple | list) and len(items[0]) == 2, "dataset", type(items[0]).__name__, right)
    xs = [item[0] for item in items]
    several = isinstance(xs[0], tuple | list)
    parts_of = [_stacked([x[i] for x in xs], f"x[{i}]") for i in range(len(xs[0]))] if several else []
    return tuple(parts_of) if several else _stacked(xs, "x"), _stacked([item[1] for item in items], "y")


def joined(parts: Sequence[Any]) -> Any:
    """The features of several data sets as one, in their order."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(np.concatenate(several) for several in zip(*parts, strict=True))
    return np.concatenate(parts)


def _stacked(values: list[Any], name: str) -> NDArray[Any]:
    rows = [np.asarray(value) for value in values]
    odd = next((i for i, row in enumerate(rows) if row.shape != rows[0].shape), None)
    if odd is not None:
        shapes = f"{list(rows[odd].shape)}, and the first has {list(rows[0].shape)}"
        raise DataError(f"dataset[{odd}]: {name} has the shape {shapes}: give all samples one shape")
    return np.stack(rows)
