"""What goes through Ray's object store: tensors as arrays, and to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from support.clusters import WITHOUT_RAY
from support.worlds import bits, data

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)

TENSORS = {
    "float64": torch.randn(3, 4, dtype=torch.float64),
    "bfloat16": torch.randn(5).to(torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "int64": torch.arange(6).view(2, 3),
    "number": torch.tensor(2.5),
    "empty": torch.empty(0, 7),
    "transposed": torch.randn(3, 4).T,
    "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_comes_back_to_the_bit(name: str) -> None:
    from fedsash.engines.ray.object_store import packed, unpacked

    found = unpacked(packed({"a": [TENSORS[name]]}))["a"][0]
    assert found.tolist() == TENSORS[name].tolist() or name == "nan"
    assert found.dtype == TENSORS[name].dtype and found.shape == TENSORS[name].shape
    if name != "bfloat16":
        assert bits(found) == bits(TENSORS[name])


def test_the_samples_are_arrays_which_processes_share() -> None:
    from fedsash.engines.ray.object_store import copied, packed, unpacked

    given = data()
    content = packed(given)
    assert sum(buffer.nbytes for buffer in content.buffers) >= given.train.x.nbytes + given.train.y.nbytes
    assert len(content.content) < 5000
    shared = unpacked(content)
    assert shared.train.x.data_ptr() == given.train.x.data_ptr()
    assert unpacked(copied(content)).train.x.data_ptr() != given.train.x.data_ptr()
