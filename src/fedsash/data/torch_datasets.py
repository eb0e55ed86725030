"""Data sets of PyTorch and of Hugging Face as the columns of all their samples, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.masked import MaskedTensor

from ..settings.errors import DataError, check, one_line
from .arrays import NO_TEXT, check_complete, native, unmasked
from .class_names import class_names_of, same_names

Columns = dict[str, Any]
"""The tensors of all samples: `x` (a tensor, or a tuple or dict of them), `y`, and perhaps `users`."""

LABELS = ("labels", "label", "y")
"""The names of labels in the items of a data set."""


def of_datasets(
    datasets: Any, label: str = "", users: str = "", test: Any = None
) -> tuple[Columns, Any, Columns | None]:
    """The samples of the data sets, each client's indices, and the samples of the data set `test`, if there is one.

    `datasets` is a single one, with None for the clients; or several, one for each client, in a list or a dict by the
    clients' names. Then the indices are a list or a dict, too. The test samples need no users.
    """
    test_columns = None
    if test is not None:
        test_columns = of_dataset(test, label, users, "test", needs_users=False)
    if isinstance(datasets, list | tuple | Mapping):
        columns, clients = _of_several(datasets, label, users, test)
        return columns, clients, test_columns
    same_names([("the data set", class_names_of(datasets)), ("the one for testing", class_names_of(test))])
    return of_dataset(datasets, label, users), None, test_columns


def _of_several(datasets: Any, label: str, users: str, test: Any) -> tuple[Columns, Any]:
    """The samples of one data set for each client, and each client's indices, by name if the data sets have names."""
    if isinstance(datasets, Mapping):
        requirement = "are splits: give the data set train, and another one as test="
        check("train" not in datasets, "datasets", list(datasets), requirement)
        by_name = dict(datasets)
    else:
        by_name = dict(enumerate(datasets))
    check(len(by_name) > 0, "datasets", list(by_name.values()), "must hold a data set for each client")
    for dataset in by_name.values():
        is_data = isinstance(dataset, tuple | Tensor | np.ndarray)
        requirement = "must be a data set, or a list of data sets, one for each client"
        check(not is_data, "datasets", type(dataset).__name__, requirement)
    parts = {name: of_dataset(dataset, label, users, f"datasets[{name!r}]") for name, dataset in by_name.items()}
    _check_forms(by_name, parts)
    class_names = [(f"the data set of client {name!r}", class_names_of(dataset)) for name, dataset in by_name.items()]
    same_names([*class_names, ("the one for testing", class_names_of(test))])
    ends = np.cumsum([len(part["y"]) for part in parts.values()])
    clients: Any = np.split(np.arange(ends[-1]), ends[:-1])
    if isinstance(datasets, Mapping):
        clients = dict(zip(datasets, clients, strict=True))
    columns = {}
    for column in next(iter(parts.values())):
        columns[column] = _joined({name: part[column] for name, part in parts.items()}, column)
    return columns, clients


def _check_forms(datasets: Mapping[Any, Any], parts: Mapping[Any, Columns]) -> None:
    """Raise `DataError`, naming the client, unless all have the same inputs, of the same shapes."""
    forms = {}
    for name, dataset in datasets.items():
        shapes = [_shapes(values) for values in parts[name].values()]
        forms[name] = [_input_names(dataset[0]), *shapes]
    first = next(iter(forms.values()))
    for name, form in forms.items():
        if form != first:
            raise DataError(f"client {name!r} has items of another form than the first: {form} and {first}")


def of_dataset(
    dataset: Any, label: str = "", users: str = "", where: str = "dataset", needs_users: bool = True
) -> Columns:
    """The samples of a data set of PyTorch whose items are `(x, y)`, or of one whose items are dicts.

    In dicts `label` and `users` name the labels and the users. All other keys are inputs. Raises `DataError`, naming
    the item and `where` it is, if an item can't be read, or is of another form than the first, and `SettingError` for a
    key that there is not; that of the users may be missing unless the data set `needs_users`.
    """
    items = _items(dataset, where)
    if isinstance(items[0], Mapping):
        if not needs_users and users not in items[0]:
            users = ""
        return _of_dicts(items, label, users, where)
    xs = [item[0] for item in items]
    y = _stacked([item[1] for item in items], "y", where)
    _check_inputs([_input_names(x) for x in xs], where)
    return {"x": _inputs(xs, where), "y": y}


def _items(dataset: Any, where: str) -> list[Any]:
    """All items of a data set, which are dicts or `(x, y)`. An error of the data set's own keeps its message."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        requirement = "only a data set with a length, whose items can be indexed, fits"
        raise DataError(f"{where}: {type(dataset).__name__} can't be read: {requirement}")
    if len(dataset) == 0:
        raise DataError(f"{where} must hold at least one sample")
    items: list[Any] = []
    for number in range(len(dataset)):
        try:
            item = dataset[number]
        except Exception as error:  # its class depends on the data set
            raise DataError(f"{where}[{number}] can't be read: {type(error).__name__}: {one_line(error)}") from error
        items.append(item)
        _check_item(item, items[0], f"{where}[{number}]")
    return items


def _check_item(item: Any, first: Any, place: str) -> None:
    """Raise `DataError` unless an item is a dict or `(x, y)`, as the first one is."""
    is_dict = isinstance(item, Mapping)
    is_pair = isinstance(item, tuple | list) and len(item) == 2
    if not (is_dict or is_pair):
        raise DataError(f"{place} is {_described(item)}: must be (x, y) or a dict")
    if is_dict != isinstance(first, Mapping):
        raise DataError(f"{place} is {_described(item)}, and the first item is {_described(first)}: give all the same")


def _described(item: Any) -> str:
    """An item in words."""
    if item is None:
        return "None"
    if isinstance(item, tuple | list):
        return f"a {type(item).__name__} of {len(item)}"
    return f"a {type(item).__name__}"


def _input_names(x: Any) -> object:
    """The names of an item's inputs, or how many it has; None for a single one."""
    if isinstance(x, Mapping):
        return sorted(map(str, x))
    if isinstance(x, tuple | list):
        return len(x)
    return None


def _check_inputs(names: Sequence[object], where: str) -> None:
    """Raise `DataError` for the first item whose inputs, as `_input_names` has them, are not those of item 0."""
    for i, of_item in enumerate(names):
        if of_item != names[0]:
            raise DataError(f"{where}[{i}]: has the inputs {of_item}, and the first has {names[0]}: give all the same")


def _shapes(values: Any) -> object:
    """The shape of one sample in a column, or the shapes of its inputs."""
    if isinstance(values, Mapping):
        return {name: list(value.shape[1:]) for name, value in values.items()}
    if isinstance(values, tuple):
        return [list(value.shape[1:]) for value in values]
    return list(values.shape[1:])


def _of_dicts(items: list[Any], label: str, users: str, where: str) -> Columns:
    """The samples of items that are dicts."""
    _check_inputs([_input_names(item) for item in items], where)
    keys = list(items[0])
    shown = ", ".join(map(str, keys))
    label = label or next((key for key in LABELS if key in keys), "")
    check(label in keys, "label", label, f"must name the labels; the items of {where} have {shown}")
    check(users in ("", *keys), "users", users, f"there is no such key; the items of {where} have {shown}")
    inputs = {}
    for key in keys:
        if key not in (label, users):
            inputs[key] = _stacked([item[key] for item in items], key, where)
    check(len(inputs) > 0, where, keys, "must have inputs besides the labels")
    x: Any = inputs
    if len(inputs) == 1:
        x = next(iter(inputs.values()))
    columns = {"x": x, "y": _stacked([item[label] for item in items], label, where)}
    if users:
        columns["users"] = _users(items, users)
    return columns


def _users(items: list[Any], key: str) -> NDArray[np.object_]:
    """The user of each item. Of a list of texts and a NaN NumPy would make texts, and of the gap a user."""
    users = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        user = item[key]
        if isinstance(user, Tensor):
            user = user.tolist()
        users[i] = user
    return users


def _inputs(xs: list[Any], where: str) -> Any:
    """The inputs of all items as one tensor, or as a dict or a tuple of tensors, as each item has them."""
    first = xs[0]
    if isinstance(first, Mapping):
        return {name: _stacked([x[name] for x in xs], name, where) for name in first}
    if isinstance(first, tuple | list):
        return tuple(_stacked([x[i] for x in xs], f"x[{i}]", where) for i in range(len(first)))
    return _stacked(xs, "x", where)


def _stacked(values: list[Any], name: str, where: str) -> Tensor:
    """One value of each item, as a tensor `[n, ...]`. Raises `DataError` with the item's number."""
    for i, value in enumerate(values):
        if isinstance(value, str | bytes | None):
            raise DataError(f"{where}[{i}]: {name} = {value!r:.60} is no number: {NO_TEXT}, or leave it out")
    for i, value in enumerate(values):
        if not isinstance(value, Tensor) or isinstance(value, MaskedTensor):
            check_complete(value, f"{where}[{i}]: {name}")
    rows = [_tensor(unmasked(value)) for value in values]
    for i, row in enumerate(rows):
        if row.shape != rows[0].shape:
            shapes = f"{list(row.shape)}, and the first has {list(rows[0].shape)}"
            raise DataError(f"{where}[{i}]: {name} has the shape {shapes}: give all samples one shape")
    _check_one_scale({f"{where}[{i}]": row for i, row in enumerate(rows)}, name)
    return torch.stack(rows)


def _tensor(value: Any) -> Tensor:
    """A value on the CPU: a tensor, or a number, an array, or an image of Pillow as one."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    return torch.from_numpy(_array(value))


def _array(value: Any) -> NDArray[Any]:
    """A value as an array: a number, an array, or an image of Pillow in grey or RGB."""
    if hasattr(value, "getbands"):  # only Pillow's images have it
        mode = getattr(value, "mode", "L")
        check(mode in ("L", "RGB"), "image.mode", mode, "must be L or RGB: use image.convert('RGB') in the data set")
    array = np.array(value)
    check(array.dtype.kind in "biuf", "dataset", type(value).__name__, "items must be numbers, arrays or images")
    return native(array)


def _joined(parts: Mapping[Any, Any], name: str) -> Any:
    """A column of the clients' data sets as one, in their order. Raises errors as `_check_one_scale` does."""
    first = next(iter(parts.values()))
    if isinstance(first, Mapping):
        return {key: _joined({client: part[key] for client, part in parts.items()}, key) for key in first}
    if isinstance(first, tuple):
        inputs = []
        for i in range(len(first)):
            inputs.append(_joined({client: part[i] for client, part in parts.items()}, f"{name}[{i}]"))
        return tuple(inputs)
    if isinstance(first, Tensor):
        _check_one_scale({f"client {client!r}": part for client, part in parts.items()}, name)
        return torch.cat(list(parts.values()))
    return np.concatenate(list(parts.values()))


def _check_one_scale(tensors: Mapping[str, Tensor], name: str) -> None:
    """Raise `DataError` for bytes beside floating-point numbers: 0 to 255 in one place, and maybe 0 to 1 in another.

    The tensors are given by their places.
    """
    places: dict[torch.dtype, str] = {}  # the first of each type
    for place, tensor in tensors.items():
        places.setdefault(tensor.dtype, place)
    for dtype, place in places.items():
        if dtype.is_floating_point and torch.uint8 in places:
            what = f"{place}: {name} has floating-point numbers, and that of {places[torch.uint8]} bytes from 0 to 255"
            raise DataError(f"{what}: give all samples one type and one scale")
