"""Flower's arrays as vectors, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from torch import Tensor

from ...averages import Pieces
from ...settings.errors import ModelError, brief
from ...vector.arrays import Vectors


def pack(value: Any, tensors: Vectors) -> Any:
    """A value as JSON. Its arrays are added to `tensors` under numbers, which stand in the JSON for them.

    It may be made of None, numbers, texts, bytes, lists, tuples, dicts, arrays of NumPy and Flower, tensors,
    ArrayRecords and MetricRecords. Every type is kept.
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: [pack(each, tensors) for each in value]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Tensor):
        return {"tensor": _put(value.detach().cpu().clone(), tensors)}
    if isinstance(value, np.generic | np.ndarray):
        kind = "scalar" if isinstance(value, np.generic) else "numpy"
        return {kind: pack(Array(np.asarray(value)), tensors)}
    if isinstance(value, Array):
        content = torch.frombuffer(bytearray(value.data), dtype=torch.uint8)
        return {"array": [value.dtype, list(value.shape), value.stype, _put(content, tensors)]}
    kind = next(name for name, each in MAPPINGS.items() if isinstance(value, each))
    return {kind: [[pack(key, tensors), pack(each, tensors)] for key, each in value.items()]}


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value of which `pack` made this JSON and these tensors."""
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind in ("list", "tuple"):
        several = [unpack(each, tensors) for each in content]
        return several if kind == "list" else tuple(several)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "tensor":
        return tensors[content]
    if kind in ("numpy", "scalar"):
        found = unpack(content, tensors).numpy()
        return found if kind == "numpy" else found[()]
    if kind == "array":
        dtype, shape, stype, number = content
        return Array(dtype, tuple(shape), stype, tensors[number].numpy().tobytes())
    return MAPPINGS[kind]({unpack(key, tensors): unpack(each, tensors) for key, each in content})


MAPPINGS: dict[str, Any] = {"ordered": OrderedDict, "dict": dict, "arrays": ArrayRecord, "metrics": MetricRecord}


def _put(tensor: Tensor, tensors: Vectors) -> str:
    """Add a tensor under the next number."""
    name = f"packed/{len(tensors)}"
    tensors[name] = tensor
    return name


Tensors = dict[str, Tensor]
"""A model's arrays by their names, each with its shape. Whole numbers and truth values are float64."""


class Form:
    """Names, types and shapes of a model's arrays. All later models have those of the first one.

    A strategy may change types: Flower's mean makes float64 of whole numbers, its FedAdam of float32.

    Raises `ModelError` if the first model has no floating-point array, or a type that has no mean.
    """

    def __init__(self, first: ArrayRecord) -> None:
        self._types = {name: _type(name, array) for name, array in first.items()}
        self._shapes = {name: tuple(array.shape) for name, array in first.items()}
        if not any(kind.kind == "f" for kind in self._types.values()):
            found = ", ".join(sorted({str(kind) for kind in self._types.values()})) or "no array"
            raise ModelError(f"Averaged: the first model has {found}, and only floating-point arrays can be averaged")

    def about(self) -> dict[str, str]:
        """Each array's type and shape, by its name."""
        return {f"array {name}": f"{kind} {list(self._shapes[name])}" for name, kind in self._types.items()}

    def tensors(self, model: ArrayRecord) -> Tensors:
        """A model's arrays as tensors: copies. Raises `ModelError` if its names or shapes are not the first model's."""
        names = [*self._types.keys() - model.keys(), *model.keys() - self._types.keys()]
        if names:
            right = "leave arrays that stay with the clients out of the initial arrays"
            raise ModelError(
                f"Averaged: the strategy's model differs from the first one in the arrays {brief(names)}: {right}"
            )
        found = {name: model[name].numpy() for name in self._types}
        for name, array in found.items():
            if array.shape != self._shapes[name]:
                here = list(array.shape)
                there = list(self._shapes[name])
                raise ModelError(f"Averaged: {name} has the shape {here} in the strategy's model and {there} at first")
        return {name: torch.from_numpy(_native(array, self._types[name])) for name, array in found.items()}

    def wrong(self, model: ArrayRecord, tensors: Tensors) -> str:
        """What is wrong with a model that has these `tensors`; empty if all of them are finite."""
        names = not_finite(tensors)
        for name in names:
            if np.isfinite(model[name].numpy()).all():
                return f"array {name} does not fit the first model's {self._types[name]}"
        return "the strategy's model is not finite" if names else ""

    def record(self, tensors: Mapping[str, Tensor], model: Mapping[str, Array] | None = None) -> ArrayRecord:
        """A model's arrays in the types of the first model; whole numbers are rounded and stay in range.

        With the `model` that has these tensors, its arrays of the right type are taken as they are.
        """
        kept = {name: array for name, array in (model or {}).items() if np.dtype(array.dtype) == self._types[name]}
        made = {n: Array(self._typed(n, tensors[n].numpy())) for n in self._types if n not in kept}
        return ArrayRecord({name: (kept | made)[name] for name in self._types})

    def _typed(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kind = self._types[name]
        if kind.kind in "iu":
            ends = np.iinfo(kind)
            highest = min(float(ends.max), np.nextafter(float(ends.max) + 1, 0))  # float64 rounds 2^63 - 1 up
            array = np.clip(array, ends.min, highest)
        whole = array if kind.kind == "f" else np.asarray(np.rint(array))  # of one number NumPy makes a scalar
        return whole.astype(kind, copy=False)


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of a model's arrays with a value that is not finite."""
    return [name for name, tensor in tensors.items() if not Pieces([tensor.reshape(-1)]).finite()]


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise `ModelError`, naming the arrays, unless all values of the first model are finite."""
    if wrong := not_finite(tensors):
        right = "keep a mask out of the state dict, with register_buffer(..., persistent=False)"
        raise ModelError(f"Averaged: the first model is not finite in the arrays {brief(wrong)}: {right}")


def _type(name: str, array: Array) -> np.dtype[Any]:
    try:
        kind: np.dtype[Any] = np.dtype(array.dtype)
    except TypeError:
        kind = np.dtype("V")
    if kind.kind in "iub" or (kind.kind == "f" and kind.itemsize <= 8):
        return kind
    raise ModelError(f"Averaged: the array {name} has the type {array.dtype}, which has no average here")


def _native(array: np.ndarray[Any, Any], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array in a type of PyTorch that holds the values of `kind`."""
    with np.errstate(over="ignore"):  # what does not fit is infinite, and not taken
        return array.astype(kind.newbyteorder("=") if kind.kind == "f" else np.float64, copy=False)
