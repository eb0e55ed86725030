"""Python values as JSON and tensors, without pickle, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from torch import Tensor

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
