"""What travels to nodes and back: every type of tensor, requests, and what is refused."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord

from fedsash.client.messages import Request
from fedsash.client.store import ClientTicket, StateRows, StateVersions
from fedsash.flower.nodes import wire
from fedsash.testing.grid import identify
from support.by_default import rotated

TYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
)


@pytest.mark.parametrize("dtype, shape", rotated(TYPES, [(), (1,), (0, 4), (2, 3)]), ids=str)
def test_every_type_of_tensor_comes_back_as_it_was(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    sent = (10 * torch.rand(shape)).to(dtype)
    found = wire.unpacked(wire.packed({"a": sent}), {"a": wire.TensorForm.of(sent)})["a"]
    assert found.dtype == dtype and found.shape == sent.shape
    assert found.numel() == 0 or torch.equal(found.reshape(-1).view(torch.uint8), sent.reshape(-1).view(torch.uint8))


def test_a_part_of_a_larger_tensor_is_sent_alone() -> None:
    whole = torch.arange(12.0).view(3, 4)
    record = wire.packed({"column": whole[:, 1], "row": whole[2]})
    assert wire.unpacked(record)["column"].tolist() == [1, 5, 9]
    assert len(record["row"].data) == 128 + 16


def test_nan_infinity_and_minus_zero_keep_their_bits() -> None:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 5e-324], dtype=torch.float64)
    assert wire.unpacked(wire.packed({"a": odd}))["a"].numpy().tobytes() == odd.numpy().tobytes()


def test_flowers_own_tools_can_read_the_arrays() -> None:
    assert wire.packed({"a": torch.tensor([1.5, 2.5])})["a"].numpy().tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (Array(np.zeros(4, np.float32)), r"a is float32 \[4\]: must be float32 \[3\]"),
        (Array(np.zeros(3)), r"a is float64 \[3\]: must be float32 \[3\]"),
        (Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=b"nonsense"), "a is not an array"),
        (Array(dtype="Tensor", shape=(3,), stype="numpy.ndarray", data=b""), "is no type of PyTorch"),
        (Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=Array(np.zeros(3)).data), "not those of"),
    ],
)
def test_what_is_not_the_expected_tensor_is_refused_with_a_reason(array: Array, why: str) -> None:
    with pytest.raises(wire.WireError, match=why):
        wire.unpacked(ArrayRecord({"a": array}), {"a": wire.TensorForm((3,), torch.float32)})


@pytest.mark.parametrize("shape", [(10**14,), (2**62, 2**62), (-1,), (4,), (2,)], ids=str)
def test_a_header_that_promises_other_lengths_than_there_are_takes_no_memory(shape: tuple[int, ...]) -> None:
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    array = Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=stream.getvalue() + 12 * b"\0")
    with pytest.raises(wire.WireError, match="not those of"):
        wire.unpacked(ArrayRecord({"a": array}))


def test_pickled_objects_are_never_loaded() -> None:
    data = (
        np.lib.format.magic(1, 0) + b"v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" + 61 * b" " + b"\n"
    )
    with pytest.raises(wire.WireError):
        wire.unpacked(ArrayRecord({"a": Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=data)}))


@pytest.mark.parametrize("keeps", [True, False])
def test_a_request_comes_back_as_it_was(keeps: bool) -> None:
    identify()
    ticket: ClientTicket = StateRows({"g": torch.rand(2, 5)})
    if keeps:
        ticket = StateVersions(last=np.array([0, 6]), oldest=3, lineage=((0, "abc"), (4, "def")))
    request = Request(
        job="train",
        round=7,
        ids=np.array([4, 2**40]),
        sent=torch.rand(5, dtype=torch.float64),
        server_state={"c": torch.rand(5), "counter": torch.tensor(3)},
        clients=ticket,
        server_steps=None if keeps else 5,
    )
    model, server = wire.packed({"w": request.sent}), wire.packed(request.server_state)
    found, settings = wire.read_request(wire.request_content(request, model, server, '{"a": 1}'))
    assert settings == '{"a": 1}'
    names = ("job", "round", "server_steps")
    assert [getattr(found, name) for name in names] == [getattr(request, name) for name in names]
    assert found.ids.tolist() == [4, 2**40]
    assert torch.equal(found.sent, request.sent)
    assert found.server_state.keys() == {"c", "counter"} and found.server_state["counter"].shape == ()
    assert type(found.clients) is type(ticket)
    assert found.clients.own.keys() == ticket.own.keys()
    assert all(torch.equal(found.clients.own[name], rows) for name, rows in ticket.own.items())
    if isinstance(found.clients, StateVersions):
        assert found.clients.last.tolist() == [0, 6] and found.clients.oldest == 3
        assert found.clients.lineage == ((0, "abc"), (4, "def"))
