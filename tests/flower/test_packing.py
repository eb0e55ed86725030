"""Values as JSON and tensors, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import Array, ArrayRecord, MetricRecord

from fedsash.flower.averaged.arrays import pack, unpack
from support.by_default import rotated

SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.integers() | st.text(max_size=5), inner)
    ),
    max_leaves=20,
)


def through(value: Any) -> Any:
    tensors: dict[str, torch.Tensor] = {}
    return unpack(json.loads(json.dumps(pack(value, tensors))), tensors)


@given(VALUES)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    found = through(value)
    assert found == value and repr(found) == repr(value)


@pytest.mark.parametrize(
    "kind, shape",
    rotated(["float16", ">f4", "float64", "int64", "uint8", "bool", "complex64"], [(), (0,), (2, 3)]),
)
def test_arrays_come_back_with_type_and_bytes(kind: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape).astype(kind)
    found = through({"a": [array, Array(array)]})["a"]
    assert found[0].dtype == array.dtype and np.array_equal(found[0], array) and found[1] == Array(array)
    scalar = through(np.dtype(kind).type(1))
    assert isinstance(scalar, np.generic) and scalar == 1


def test_tensors_and_records_come_back() -> None:
    tensor = torch.arange(3, dtype=torch.bfloat16)
    record, metrics = ArrayRecord({"a": Array(np.ones(2))}), MetricRecord({"n": 3, "x": [0.5, 1.5]})
    found = through((tensor, record, metrics))
    assert found[0].dtype == torch.bfloat16 and torch.equal(found[0], tensor)
    assert isinstance(found[1], ArrayRecord) and found[1] == record
    assert isinstance(found[2], MetricRecord) and found[2] == metrics and isinstance(found[2]["n"], int)
