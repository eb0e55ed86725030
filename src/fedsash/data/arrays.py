"""Arrays, tensors and lists that users have in memory, as the tensors of samples and the indices of clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.masked import MaskedTensor

from ..settings.errors import DataError, SettingError, check
from .inputs import Inputs
from .mapped import MappedTensor, location_of, mapped
from .members import Members

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
    if isinstance(x, MappedTensor):
        return numbers(values[..., None], name)
    return x.unsqueeze(-1)


def labels(values: Any) -> Tensor:
    """Labels `[n, ...]`: int64, or of their own floating-point type."""
    y = numbers(values, "y")
    if y.is_floating_point():
        return y
    return y.to(torch.int64)


def numbers(values: Any, name: str) -> Tensor:
    """A tensor of images (uint8), of floating-point numbers, of int64, or of bool.

    It shares the memory of NumPy arrays where possible. An array that NumPy has mapped stays in its file, unless it has
    integers of another type. Raises `SettingError` for text and other objects, and for samples of different shapes.
    """
    if isinstance(values, MaskedTensor):
        check_complete(values, name)
        values = unmasked(values)
    if isinstance(values, np.memmap) and values.dtype.str in STAY:
        location = location_of(values)
        if location is not None:
            return mapped(*location)
    if not isinstance(values, Tensor):
        values = torch.from_numpy(_array_of_numbers(values, name))
    tensor: Tensor = values
    if tensor.is_inference():
        tensor = tensor.clone()  # autograd refuses tensors of inference mode
    if tensor.requires_grad:
        tensor = tensor.detach()  # each step would go back through what the features are made of
    check(not tensor.is_complex(), name, tensor.dtype, "must be real numbers: give the parts as features of their own")
    check(tensor.layout is torch.strided, name, tensor.layout, "must be a dense tensor: use to_dense()")
    if tensor.is_floating_point() or tensor.dtype in (torch.uint8, torch.bool):
        return tensor
    return tensor.to(torch.int64)


def _array_of_numbers(values: Any, name: str) -> NDArray[Any]:
    """An array or a list as an array of a type that PyTorch has. Raises errors as `numbers` does."""
    try:
        missing = _missing(values)
        if missing is not None:
            values = _unmasked_deep(values)
        array = np.require(values, requirements=["C", "W"])
    except ValueError as error:
        raise DataError(f"{name}: the samples have different shapes: give all of them one shape") from error
    _check_none_missing(missing, name)
    check_complete(array, name)
    kind = f"{array.dtype} {list(array.shape)}"
    check(array.dtype.kind != "c", name, kind, "must be real numbers: give the parts as features of their own")
    cure = NO_TEXT
    if array.dtype.kind == "O" and array.size > 0 and isinstance(array.flat[0], list | np.ndarray):
        cure = "make one array of the samples' arrays (numpy.stack)"
    elif array.dtype.kind == "O" and all(isinstance(value, Number | np.bool_) for value in array.flat):
        cure = "give all columns one type: frame.astype(float)"
    check(array.dtype.kind in "biuf", name, kind, f"must be numbers: {cure}")
    return native(signed(array))


def signed(array: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers beyond int64, which only uint64 has, as float64."""
    if array.dtype.kind == "u" and array.itemsize == 8 and array.size > 0 and int(array.max()) >= 2**63:
        return array.astype(np.float64)
    return array


def native(array: NDArray[Any]) -> NDArray[Any]:
    """The array in a type that PyTorch has: with this machine's order of bytes, and at most 64 bits."""
    if array.dtype == np.longdouble:
        return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_complete(values: Any, name: str) -> None:
    """Raise `DataError`, with the place, if a value is missing.

    Such values are masked in a masked array or tensor, NA in pandas, null in Arrow, and None or NaT in an array of
    objects, also inside the arrays and lists that it holds. NumPy would take what lies behind a mask for a value, and a
    null for NaN.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "O" and not isinstance(values, np.ma.MaskedArray):
        leaves = list(_leaves(values))
        missing = [place for place, value in leaves if _is_nothing(value)]
        if missing:
            raise _missing_error(name, missing[0], len(missing), len(leaves))
    _check_none_missing(_missing(values), name)


def _is_nothing(value: Any) -> bool:
    """Whether a value of an array of objects stands for a missing one; the text "nan" is a text."""
    return str(value) in NOTHING and not isinstance(value, str)


def _leaves(values: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The values in an array, and in the arrays and lists that it holds, each with its place."""
    if isinstance(values, np.ndarray) and values.ndim == 0:
        values = values.item()
    if isinstance(values, np.ndarray | list | tuple):
        for i, value in enumerate(values):
            yield from _leaves(value, (*place, i))
    else:
        yield place, values


def unmasked(value: Any) -> Any:
    """The data of a masked tensor; anything else as it is."""
    if isinstance(value, MaskedTensor):
        return value.get_data()  # type: ignore[no-untyped-call]
    return value


def _unmasked_deep(values: Any) -> Any:
    """The data of a masked tensor, and of those in lists; anything else as it is."""
    if isinstance(values, list | tuple):
        return [_unmasked_deep(value) for value in values]
    return unmasked(values)


def _check_none_missing(missing: NDArray[Any] | None, name: str) -> None:
    """Raise `DataError` for the first place where a value is `missing`."""
    if missing is not None and missing.any():
        raise _missing_error(name, np.argwhere(missing)[0].tolist(), int(missing.sum()), missing.size)


def _missing_error(name: str, place: Sequence[int], count: int, total: int) -> DataError:
    """The error for `count` of `total` values that are missing, the first of them at a place."""
    where = ", ".join(map(str, place))
    cure = "fill it, or leave the sample out"
    return DataError(f"{name}[{where}] is missing: {cure}; {count:,} of {total:,} are missing")


def _missing(values: Any) -> NDArray[Any] | None:
    """Where values are missing, as truth values; None for a type that has no missing values."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.getmaskarray(values)
    if isinstance(values, MaskedTensor):
        return _mask_of_tensor(values)
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
    for value in values:
        if isinstance(value, np.ma.MaskedArray | MaskedTensor):
            return True
        if isinstance(value, list | tuple) and _holds_masked(value):
            return True
    return False


def _mask_of_tensor(values: Any) -> NDArray[Any]:
    """Where a masked tensor has no value: its own mask is true where it has one."""
    mask = values.get_mask()
    if mask.layout is not torch.strided:
        mask = mask.to_dense()
    missing: NDArray[Any] = ~mask.cpu().numpy()
    return missing


def _nested_mask(values: Any) -> NDArray[Any]:
    """The mask of masked arrays and tensors in lists, as one array. Raises `ValueError` if their shapes differ."""
    if isinstance(values, list | tuple):
        return np.stack([_nested_mask(value) for value in values])
    if isinstance(values, MaskedTensor):
        return _mask_of_tensor(values)
    return np.ma.getmaskarray(values)


def user_numbers(users: Any, n: int) -> tuple[Tensor, tuple[str, ...]]:
    """The numbers of the users `[n]`, given by any names or numbers, in the order of their names; and these names.

    Raises `SettingError` unless there is one for each of `n` samples.
    """
    check_complete(users, "users")
    users = unmasked(users)
    # Of a list that mixes numbers and texts NumPy would make texts.
    column = np.asarray(users) if hasattr(users, "dtype") else np.asarray(users, dtype=object)
    requirement = f"must name a user for each of {n} samples"
    check(column.shape == (n,), "users", f"{column.dtype} {list(column.shape)}", requirement)
    if column.dtype.kind in "iu":
        distinct, numbers = np.unique(column, return_inverse=True)
        return torch.from_numpy(numbers), tuple(map(str, distinct.tolist()))
    values = column.tolist()
    for i, value in enumerate(values):
        if isinstance(value, np.generic):
            values[i] = value.item()
    for i, value in enumerate(values):
        if _is_nothing(value):
            raise SettingError.at(f"users[{i}]", value, requirement)
    types = {type(value) for value in values}
    are_ordered = all(issubclass(each, int | float | str) for each in types)
    if len(types) > 1 or not are_ordered:
        values = [str(value) for value in values]
    # Not by np.unique: NumPy's arrays of texts would lose a character 0 at a text's end.
    names = sorted(set(values))
    number = {name: i for i, name in enumerate(names)}
    return torch.tensor([number[value] for value in values]), tuple(map(str, names))


def by_user(users: Tensor) -> Members:
    """The indices of each user's samples, from the users' numbers `[n]`."""
    number = users.numpy()
    return Members(np.argsort(number, kind="stable"), np.bincount(number).cumsum())


def indices(clients: Any) -> Sequence[Any]:
    """The indices of each client's samples. Raises `SettingError` for a column that names each sample's client."""
    if isinstance(clients, Mapping):
        clients = list(clients.values())
    is_column = getattr(clients, "ndim", 2) == 1 and getattr(clients, "dtype", "") != np.dtype(object)
    is_list = isinstance(clients, Sequence) and not isinstance(clients, str)
    if is_list and len(clients) > 0 and isinstance(clients[0], str | int | np.integer):
        is_column = True
    requirement = "must be a list with the indices of each client's samples; for a column of users give users="
    check(hasattr(clients, "__len__") and not is_column, "clients", clients, requirement)
    each_client: Sequence[Any] = clients
    return each_client


def of_clients(clients: Sequence[Any], name: str, n: int) -> Members:
    """Each client's indices into `n` samples. Raises `SettingError`, naming the client, for others."""
    if isinstance(clients, Members):
        members = clients
    else:
        members = Members.of([_index_array(client, f"FederatedData.{name}[{i}]") for i, client in enumerate(clients)])
    wrong = np.flatnonzero((members.flat < 0) | (members.flat >= n))
    if len(wrong):
        client = int(np.searchsorted(members.ends, wrong[0], side="right"))
        index = int(members.flat[wrong[0]])
        raise SettingError.at(f"FederatedData.{name}[{client}]", index, f"must be indices from 0 to {n - 1}")
    return members


def _index_array(values: Any, place: str) -> NDArray[Any]:
    """One client's indices as an array of integers. Raises `SettingError` for anything else."""
    check_complete(values, place)
    values = unmasked(values)
    if isinstance(values, Tensor):
        values = values.cpu()
    array = np.asarray(values)
    kind = f"{array.dtype} {list(array.shape)}"
    are_integers = array.size == 0 or array.dtype.kind in "iu"
    check(array.ndim == 1 and are_integers, place, kind, "must be a list of indices")
    return array
