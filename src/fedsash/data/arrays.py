"""From what users have in memory to samples: arrays, tensors, lists, dicts of them, and data sets of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.masked import MaskedTensor

from ..settings.errors import DataError, SettingError, check, one_line
from .class_names import of_data_set, same_names
from .inputs import Inputs
from .mapped import MappedTensor, mapped, place_of
from .members import Members

Columns = dict[str, Any]
"""The tensors of all samples: `x` (a tensor, or a tuple or dict of them), `y`, and perhaps `users`."""

LABELS = ("labels", "label", "y")
"""The names of labels in the items of a data set."""
STAY = ("<f8", "<f4", "<f2", "<i8", "|u1", "|b1")
"""The types of mapped arrays that stay in their files."""
NOTHING = ("None", "nan", "NaT", "<NA>")
"""How missing values are written by Python, NumPy and pandas."""
NO_TEXT = "turn text into token ids first (fedsash.data.tokenise), and categories into integers"


def features(values: Any) -> Tensor | Inputs:
    """Samples' features `[n, ...]`. A dict is passed to the model by name, a tuple by position."""
    if isinstance(values, Mapping):
        return Inputs({name: _feature(value, f"x[{name!r}]") for name, value in values.items()})
    if isinstance(values, tuple):
        return Inputs([_feature(value, f"x[{i}]") for i, value in enumerate(values)])
    return _feature(values, "x")


def _feature(values: Any, name: str) -> Tensor:
    """The tensor of a feature; grey images get their channel."""
    x = numbers(values, name)
    if x.dtype != torch.uint8 or x.ndim != 3:
        return x
    return numbers(values[..., None], name) if isinstance(x, MappedTensor) else x.unsqueeze(-1)


def labels(values: Any) -> Tensor:
    """Labels `[n, ...]`: int64, or of their own floating-point type."""
    y = numbers(values, "y")
    return y if y.is_floating_point() else y.to(torch.int64)


def numbers(values: Any, name: str) -> Tensor:
    """A tensor of images (uint8), of floating-point numbers, of int64, or of bool.

    It shares the memory of NumPy arrays where possible. An array that NumPy has mapped stays in its file, unless it has
    integers of another type. Raises `SettingError` for text and other objects, and for samples of different shapes.
    """
    if isinstance(values, MaskedTensor):
        check_complete(values, name)
        values = _plain(values)
    if isinstance(values, np.memmap) and (place := place_of(values)) and values.dtype.str in STAY:
        return mapped(*place)
    if not isinstance(values, Tensor):
        try:
            missing = _missing(values)
            array = np.require(values if missing is None else _unmasked(values), requirements=["C", "W"])
        except ValueError as error:
            raise DataError(f"{name}: the samples have different shapes: give all of them one shape") from error
        _check_none(missing, name)
        check_complete(array, name)
        kind = f"{array.dtype} {list(array.shape)}"
        check(array.dtype.kind != "c", name, kind, "must be real numbers: give the parts as features of their own")
        rows = array.dtype.kind == "O" and array.size > 0 and isinstance(array.flat[0], list | np.ndarray)
        how = "make one array of the samples' arrays (numpy.stack)" if rows else NO_TEXT
        check(array.dtype.kind in "biuf", name, kind, f"must be numbers: {how}")
        values = torch.from_numpy(native(signed(array)))
    found: Tensor = values.clone() if values.is_inference() else values  # autograd refuses those of inference mode
    check(not found.is_complex(), name, found.dtype, "must be real numbers: give the parts as features of their own")
    check(found.layout is torch.strided, name, found.layout, "must be a dense tensor: use to_dense()")
    kept = found.is_floating_point() or found.dtype in (torch.uint8, torch.bool)
    return found if kept else found.to(torch.int64)


def check_complete(values: Any, name: str) -> None:
    """Raise `DataError`, with the place, if a value is missing.

    Such values are masked in a masked array or tensor, NA in pandas, null in Arrow, and None or NaT in an array of
    objects, also inside the arrays and lists that it holds. NumPy would take what lies behind a mask for a value, and a
    null for NaN.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "O" and not isinstance(values, np.ma.MaskedArray):
        leaves = list(_leaves(values))
        gone = [place for place, value in leaves if str(value) in NOTHING and not isinstance(value, str)]
        if gone:
            raise _lack(name, gone[0], len(gone), len(leaves))
    _check_none(_missing(values), name)


def _leaves(values: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The values in an array, and in the arrays and lists that it holds, each with its place."""
    if isinstance(values, np.ndarray) and values.ndim == 0:
        values = values.item()
    if isinstance(values, np.ndarray | list | tuple):
        for i, value in enumerate(values):
            yield from _leaves(value, (*place, i))
    else:
        yield place, values


def _unmasked(values: Any) -> Any:
    """The data of a masked tensor, and of those in lists; anything else as it is."""
    if isinstance(values, list | tuple):
        return [_unmasked(value) for value in values]
    return _plain(values)


def _plain(value: Any) -> Any:
    """The data of a masked tensor; anything else as it is."""
    return value.get_data() if isinstance(value, MaskedTensor) else value  # type: ignore[no-untyped-call]


def _lack(name: str, place: Sequence[int], count: int, of: int) -> DataError:
    """The error for values that are missing, of which the first is at a place."""
    where = ", ".join(map(str, place))
    how = "fill it, or leave the sample out"
    return DataError(f"{name}[{where}] is missing: {how}; {count:,} of {of:,} are missing")


def _check_none(missing: np.ndarray[Any, Any] | None, name: str) -> None:
    """Raise `DataError` for the first place where a value is `missing`."""
    if missing is not None and missing.any():
        raise _lack(name, np.argwhere(missing)[0].tolist(), int(missing.sum()), missing.size)


def _missing(values: Any) -> np.ndarray[Any, Any] | None:
    """Where values are missing, as truth values; None for a type that has no missing values."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.getmaskarray(values)
    if isinstance(values, MaskedTensor):
        return _hidden(values)
    if hasattr(values, "isna"):  # pandas
        return np.asarray(values.isna())
    if hasattr(values, "itercolumns"):  # a table of Arrow
        return np.stack([np.asarray(column.is_null()) for column in values.itercolumns()], axis=1)
    if hasattr(values, "is_null") and hasattr(values, "null_count"):  # an array of Arrow
        return np.asarray(values.is_null())
    if isinstance(values, list | tuple) and _holds_masked(values):
        return _nested_mask(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        return np.isnat(values)
    return None


def _holds_masked(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a masked array or tensor lies in a list, at any depth."""
    return any(
        isinstance(value, np.ma.MaskedArray | MaskedTensor)
        or (isinstance(value, list | tuple) and _holds_masked(value))
        for value in values
    )


def _hidden(values: Any) -> np.ndarray[Any, Any]:
    """Where a masked tensor has no value: its own mask is true where it has one."""
    mask = values.get_mask()
    dense = mask if mask.layout is torch.strided else mask.to_dense()
    found: np.ndarray[Any, Any] = ~dense.cpu().numpy()
    return found


def _nested_mask(values: Any) -> np.ndarray[Any, Any]:
    """The mask of masked arrays and tensors in lists, as one array. Raises `ValueError` if their shapes differ."""
    if isinstance(values, list | tuple):
        return np.stack([_nested_mask(value) for value in values])
    if isinstance(values, MaskedTensor):
        return _hidden(values)
    return np.ma.getmaskarray(values)


def signed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whole numbers beyond int64, which only uint64 has, as float64."""
    beyond = array.dtype.kind == "u" and array.itemsize == 8 and array.size > 0 and int(array.max()) >= 2**63
    return array.astype(np.float64) if beyond else array


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in a type that PyTorch has: with this machine's order of bytes, and at most 64 bits."""
    wide = array.dtype == np.longdouble
    return array.astype(np.float64) if wide else array.astype(array.dtype.newbyteorder("="), copy=False)


def user_numbers(users: Any, n: int) -> tuple[Tensor, tuple[str, ...]]:
    """The numbers of the users `[n]`, given by any names or numbers, in the order of their names; and these names.

    Raises `SettingError` unless there is one for each of `n` samples.
    """
    check_complete(users, "users")
    users = _plain(users)
    column = np.asarray(users, dtype=None if hasattr(users, "dtype") else object)
    right = f"must name a user for each of {n} samples"
    check(column.shape == (n,), "users", f"{column.dtype} {list(column.shape)}", right)
    if column.dtype.kind in "iu":
        found, numbers = np.unique(column, return_inverse=True)
        return torch.from_numpy(numbers), tuple(map(str, found.tolist()))
    values = [one.item() if isinstance(one, np.generic) else one for one in column.tolist()]
    missing = next((i for i, one in enumerate(values) if not isinstance(one, str) and str(one) in NOTHING), None)
    check(missing is None, f"users[{missing}]", None if missing is None else values[missing], right)
    if len({type(one) for one in values}) > 1 or not isinstance(values[0], int | float | str):
        values = [str(one) for one in values]
    # NumPy's arrays of texts would lose a character 0 at a text's end.
    names = sorted(set(values))
    number = {one: place for place, one in enumerate(names)}
    return torch.tensor([number[one] for one in values]), tuple(map(str, names))


def by_user(users: Tensor) -> Members:
    """The indices of each user's samples, from the users' numbers `[n]`."""
    number = users.numpy()
    return Members(np.argsort(number, kind="stable"), np.bincount(number).cumsum())


def indices(clients: Any) -> Sequence[Any]:
    """The indices of each client's samples. Raises `SettingError` for a column that names each sample's client."""
    if isinstance(clients, Mapping):
        clients = list(clients.values())
    right = "must be a list with the indices of each client's samples; for a column of users give users="
    one_each = getattr(clients, "ndim", 2) == 1 and getattr(clients, "dtype", "") != np.dtype(object)
    plain = isinstance(clients, Sequence) and not isinstance(clients, str)
    flat = plain and len(clients) > 0 and isinstance(clients[0], str | int | np.integer)
    check(not one_each and not flat and (plain or hasattr(clients, "__len__")), "clients", clients, right)
    found: Sequence[Any] = clients
    return found


def of_datasets(
    datasets: Any, label: str = "", users: str = "", test: Any = None
) -> tuple[Columns, Any, Columns | None]:
    """The samples of one data set; or of several, one for each client, and each client's indices, in a dict by name.
    Last come those of the data set `test`, if there is one."""
    tested = None if test is None else of_dataset(test, label, users)
    if not isinstance(datasets, list | tuple | Mapping):
        same_names([("the data set", of_data_set(datasets)), ("the one for testing", of_data_set(test))])
        return of_dataset(datasets, label, users), None, tested
    split = isinstance(datasets, Mapping) and "train" in datasets
    check(not split, "datasets", list(datasets), "are splits: give the data set train, and another one as test=")
    several = list(datasets.values()) if isinstance(datasets, Mapping) else list(datasets)
    named_by = list(datasets) if isinstance(datasets, Mapping) else list(range(len(several)))
    check(len(several) > 0, "datasets", several, "must hold a data set for each client")
    bare = next((one for one in several if isinstance(one, tuple | Tensor | np.ndarray)), None)
    right = "must be a data set, or a list of data sets, one for each client"
    check(bare is None, "datasets", type(bare).__name__, right)
    parts = [of_dataset(one, label, users, f"datasets[{n!r}]") for n, one in zip(named_by, several, strict=True)]
    forms = [[_keys(one[0]), *map(_form, part.values())] for one, part in zip(several, parts, strict=True)]
    odd = next((i for i, form in enumerate(forms) if form != forms[0]), None)
    if odd is not None:
        raise DataError(
            f"client {named_by[odd]!r} has items of another form than the first: {forms[odd]} and {forms[0]}"
        )
    ends = np.cumsum([len(part["y"]) for part in parts])
    own = np.split(np.arange(ends[-1]), ends[:-1])
    named = dict(zip(datasets, own, strict=True)) if isinstance(datasets, Mapping) else own
    wheres = [f"the data set of client {name!r}" for name in named_by]
    same_names(zip([*wheres, "the one for testing"], map(of_data_set, [*several, test]), strict=True))
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}, named, tested


def of_dataset(dataset: Any, label: str = "", users: str = "", where: str = "dataset") -> Columns:
    """The samples of a data set of PyTorch whose items are `(x, y)`, or of one whose items are dicts.

    In dicts `label` and `users` name the labels and the users. All other keys are inputs. Raises `DataError`, naming
    the item and `where` it is, if an item can't be read, or is of another form than the first.
    """
    items = _items(dataset, where)
    if isinstance(items[0], Mapping):
        return _of_dicts(items, label, users, where)
    xs = [item[0] for item in items]
    y = _stacked([item[1] for item in items], "y", where)
    _check_keys([_keys(x) for x in xs], where)
    if isinstance(xs[0], Mapping):
        return {"x": {name: _stacked([x[name] for x in xs], name, where) for name in xs[0]}, "y": y}
    if isinstance(xs[0], tuple | list):
        return {"x": tuple(_stacked([x[i] for x in xs], f"x[{i}]", where) for i in range(len(xs[0]))), "y": y}
    return {"x": _stacked(xs, "x", where), "y": y}


def _items(dataset: Any, where: str) -> list[Any]:
    """All items of a data set, which are dicts or `(x, y)`. An error of the data set's own keeps its message."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        right = "only a data set with a length, whose items can be indexed, fits"
        raise DataError(f"{where}: {type(dataset).__name__} can't be read: {right}")
    if len(dataset) == 0:
        raise DataError(f"{where} must hold at least one sample")
    items: list[Any] = []
    for number in range(len(dataset)):
        try:
            item = dataset[number]
        except Exception as error:  # its class depends on the data set
            raise DataError(f"{where}[{number}] can't be read: {type(error).__name__}: {one_line(error)}") from error
        _check_item(item, items[0] if items else item, f"{where}[{number}]")
        items.append(item)
    return items


def _check_item(item: Any, first: Any, place: str) -> None:
    """Raise `DataError` unless an item is a dict or `(x, y)`, as the first one is."""
    pair = isinstance(item, tuple | list) and len(item) == 2
    if pair or isinstance(item, Mapping):
        if isinstance(item, Mapping) == isinstance(first, Mapping):
            return
        raise DataError(f"{place} is {_kind(item)}, and the first item is {_kind(first)}: give all the same")
    raise DataError(f"{place} is {_kind(item)}: must be (x, y) or a dict")


def _kind(item: Any) -> str:
    """An item in words."""
    if isinstance(item, tuple | list):
        return f"a {type(item).__name__} of {len(item)}"
    return "None" if item is None else f"a {type(item).__name__}"


def _keys(x: Any) -> object:
    """The names of an item's inputs, or how many it has; None for a single one."""
    return sorted(map(str, x)) if isinstance(x, Mapping) else len(x) if isinstance(x, tuple | list) else None


def _check_keys(keys: Sequence[object], where: str) -> None:
    odd = next((i for i, own in enumerate(keys) if own != keys[0]), None)
    if odd is not None:
        raise DataError(f"{where}[{odd}]: has the inputs {keys[odd]}, and the first has {keys[0]}: give all the same")


def _form(values: Any) -> object:
    """What items have in common: the shapes of their inputs."""
    if isinstance(values, Mapping):
        return {name: list(value.shape[1:]) for name, value in values.items()}
    if isinstance(values, tuple):
        return [list(value.shape[1:]) for value in values]
    return list(values.shape[1:])


def _of_dicts(items: list[Any], label: str, users: str, where: str) -> Columns:
    _check_keys([_keys(item) for item in items], where)
    keys = list(items[0])
    name = label or next((key for key in LABELS if key in keys), "")
    check(name in keys, "label", name, f"must name the labels; the items have {', '.join(map(str, keys))}")
    check(users in ("", *keys), "users", users, f"there is no such key; the items have {', '.join(map(str, keys))}")
    parts = {key: _stacked([item[key] for item in items], key, where) for key in keys if key not in (name, users)}
    check(len(parts) > 0, "dataset", keys, "must have inputs besides the labels")
    x: Any = next(iter(parts.values())) if len(parts) == 1 else parts
    found = {"x": x, "y": _stacked([item[name] for item in items], name, where)}
    return found | ({"users": np.array([item[users] for item in items])} if users else {})


def _stacked(values: list[Any], name: str, where: str) -> Tensor:
    odd = next((i for i, value in enumerate(values) if isinstance(value, str | bytes | None)), None)
    if odd is not None:
        raise DataError(f"{where}[{odd}]: {name} = {values[odd]!r:.60} is no number: {NO_TEXT}, or leave it out")
    for number, value in enumerate(values):
        if not isinstance(value, Tensor) or isinstance(value, MaskedTensor):
            check_complete(value, f"{where}[{number}]: {name}")
    values = list(map(_plain, values))
    rows = [value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(_array(value)) for value in values]
    odd = next((i for i, row in enumerate(rows) if row.shape != rows[0].shape), None)
    if odd is not None:
        shapes = f"{list(rows[odd].shape)}, and the first has {list(rows[0].shape)}"
        raise DataError(f"{where}[{odd}]: {name} has the shape {shapes}: give all samples one shape")
    return torch.stack(rows)


def _array(value: Any) -> Any:
    """A value as an array: a number, an array, or an image of Pillow in grey or RGB."""
    mode = getattr(value, "mode", "L") if hasattr(value, "getbands") else "L"
    check(mode in ("L", "RGB"), "image.mode", mode, "must be L or RGB: use image.convert('RGB') in the data set")
    array = np.array(value)
    check(array.dtype.kind in "biuf", "dataset", type(value).__name__, "items must be numbers, arrays or images")
    return native(array)


def _joined(parts: Sequence[Any]) -> Any:
    """The columns of several data sets as one, in their order."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: torch.cat([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(torch.cat(several) for several in zip(*parts, strict=True))
    return torch.cat(list(parts)) if isinstance(first, Tensor) else np.concatenate(parts)


def of_clients(given: Sequence[Any], name: str, n: int) -> Members:
    """Each client's indices into `n` samples. Raises `SettingError`, naming the client, for others."""
    if not isinstance(given, Members):
        for i, client in enumerate(given):
            check_complete(client, f"FederatedData.{name}[{i}]")
        given = list(map(_plain, given))
        each = [client.cpu().numpy() if isinstance(client, Tensor) else np.asarray(client) for client in given]
        for i, indices in enumerate(each):
            if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
                kind = f"{indices.dtype} {list(indices.shape)}"
                raise SettingError.at(f"FederatedData.{name}[{i}]", kind, "must be a list of indices")
        given = Members.of(each)
    wrong = np.flatnonzero((given.flat < 0) | (given.flat >= n))
    if len(wrong):
        client = int(np.searchsorted(given.ends, wrong[0], side="right"))
        raise SettingError.at(
            f"FederatedData.{name}[{client}]", int(given.flat[wrong[0]]), f"must be indices from 0 to {n - 1}"
        )
    return given
