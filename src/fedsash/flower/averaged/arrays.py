"""Flower's arrays as vectors, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from torch import Tensor

from ...averages import Pieces
from ...settings.errors import ModelError, brief
from ...vector.arrays import Vectors


@dataclass(frozen=True)
class ObjectState:
    """The `state_dict` of an object."""

    state: Any


def pack(value: Any, tensors: Vectors) -> Any:
    """A value as JSON. Its arrays are added to `tensors` under numbers, which stand in the JSON for them.

    It may be made of None, numbers, texts, bytes, lists, tuples, dicts, arrays of NumPy and Flower, tensors,
    ArrayRecords, MetricRecords and the states of objects. Every type is kept.
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: [pack(each, tensors) for each in value]}
    if isinstance(value, ObjectState):
        return {"state": pack(value.state, tensors)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Tensor):
        return {"tensor": _put(value.detach().cpu().clone(), tensors)}
    if isinstance(value, np.generic):
        return {"scalar": pack(Array(np.asarray(value)), tensors)}
    if isinstance(value, np.ndarray):
        return {"numpy": pack(Array(np.asarray(value)), tensors)}
    if isinstance(value, Array):
        content = torch.frombuffer(bytearray(value.data), dtype=torch.uint8)
        return {"array": [value.dtype, list(value.shape), value.stype, _put(content, tensors)]}
    items = [[pack(key, tensors), pack(each, tensors)] for key, each in value.items()]
    return {_mapping_kind(value): items}


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value of which `pack` made this JSON and these tensors."""
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind in ("list", "tuple"):
        values = [unpack(each, tensors) for each in content]
        return tuple(values) if kind == "tuple" else values
    if kind == "state":
        return ObjectState(unpack(content, tensors))
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "tensor":
        return tensors[content]
    if kind == "numpy":
        return unpack(content, tensors).numpy()
    if kind == "scalar":
        return unpack(content, tensors).numpy()[()]
    if kind == "array":
        dtype, shape, stype, number = content
        return Array(dtype, tuple(shape), stype, tensors[number].numpy().tobytes())
    return MAPPINGS[kind]({unpack(key, tensors): unpack(each, tensors) for key, each in content})


MAPPINGS: dict[str, Any] = {"ordered": OrderedDict, "dict": dict, "arrays": ArrayRecord, "metrics": MetricRecord}
"""The classes of mappings that can be packed. An OrderedDict is a dict, too, so it stands before it."""


def _mapping_kind(value: Any) -> str:
    for kind, cls in MAPPINGS.items():
        if isinstance(value, cls):
            return kind
    raise TypeError(f"can't pack {type(value)}")


def _put(tensor: Tensor, tensors: Vectors) -> str:
    """Add a tensor under the next number."""
    name = f"packed/{len(tensors)}"
    tensors[name] = tensor
    return name


Tensors = dict[str, Tensor]
"""A model's arrays by their names, each with its shape. Whole numbers and truth values are float64."""


class ArrayLayout:
    """Names, types and shapes of a model's arrays. All later models have those of the first one.

    A strategy may change types: Flower's mean makes float64 of whole numbers, its FedAdam of float32.

    Raises `ModelError` if the first model has no floating-point array, or a type that has no mean.
    """

    def __init__(self, first: ArrayRecord) -> None:
        self._types = {name: _type(name, array) for name, array in first.items()}
        self._shapes = {name: tuple(array.shape) for name, array in first.items()}
        types = self._types.values()
        if not any(dtype.kind == "f" for dtype in types):
            present = ", ".join(sorted({str(dtype) for dtype in types})) or "no array"
            raise ModelError(f"Averaged: the first model has {present}, and only floating-point arrays can be averaged")

    def fingerprint(self) -> dict[str, str]:
        """Each array's type and shape, by its name."""
        return {f"array {name}": f"{dtype} {list(self._shapes[name])}" for name, dtype in self._types.items()}

    def tensors(self, model: ArrayRecord) -> Tensors:
        """A model's arrays as tensors: copies. Raises `ModelError` if its names or shapes are not the first model's."""
        missing = self._types.keys() - model.keys()
        surplus = model.keys() - self._types.keys()
        if missing or surplus:
            raise ModelError(
                f"Averaged: the strategy's model differs from the first one in the arrays {brief([*missing, *surplus])}"
                ": leave arrays that stay with the clients out of the initial arrays"
            )
        arrays = {name: model[name].numpy() for name in self._types}
        for name, array in arrays.items():
            shape = list(array.shape)
            first = list(self._shapes[name])
            if shape != first:
                raise ModelError(f"Averaged: {name} has the shape {shape} in the strategy's model and {first} at first")
        return {name: torch.from_numpy(_native(array, self._types[name])) for name, array in arrays.items()}

    def fault(self, model: ArrayRecord, tensors: Tensors) -> str:
        """Why a model with these `tensors` can't be averaged; empty if all of them are finite."""
        names = not_finite(tensors)
        if not names:
            return ""
        for name in names:
            if np.isfinite(model[name].numpy()).all():
                return f"array {name} does not fit the first model's {self._types[name]}"
        return "the strategy's model is not finite"

    def record(self, tensors: Mapping[str, Tensor], model: Mapping[str, Array] | None = None) -> ArrayRecord:
        """A model's arrays in the types of the first model; whole numbers are rounded and stay in range.

        With the `model` that has these tensors, its arrays of the right type are taken as they are.
        """
        arrays = {}
        for name, dtype in self._types.items():
            if model is not None and np.dtype(model[name].dtype) == dtype:
                arrays[name] = model[name]
            else:
                arrays[name] = Array(_typed(tensors[name].numpy(), dtype))
        return ArrayRecord(arrays)


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of a model's arrays with a value that is not finite."""
    return [name for name, tensor in tensors.items() if not Pieces([tensor.reshape(-1)]).finite()]


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise `ModelError`, naming the arrays, unless all values of the first model are finite."""
    if names := not_finite(tensors):
        cure = "keep a mask out of the state dict, with register_buffer(..., persistent=False)"
        raise ModelError(f"Averaged: the first model is not finite in the arrays {brief(names)}: {cure}")


def _type(name: str, array: Array) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(array.dtype)
    except TypeError:
        dtype = np.dtype("V")
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return dtype
    raise ModelError(f"Averaged: the array {name} has the type {array.dtype}, which has no average here")


def _native(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array in a type of PyTorch that holds the values of `dtype`."""
    native = dtype.newbyteorder("=") if dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):  # a value that does not fit becomes infinite, and its model is refused
        return array.astype(native, copy=False)


def _typed(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array in the type `dtype`; for whole numbers its values are rounded and stay in range."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        highest = min(float(limits.max), np.nextafter(float(limits.max) + 1, 0))  # float64 rounds 2^63 - 1 up
        array = np.clip(array, limits.min, highest)
    if dtype.kind != "f":
        array = np.asarray(np.rint(array))  # of one number NumPy makes a scalar
    return array.astype(dtype, copy=False)
