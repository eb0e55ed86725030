"""A method may send, upload and use other vectors than in round 0, for which engines have made memory and code."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedsash.engines import buffers
from fedsash.server.state import State
from support.switching import Switching
from support.worlds import EVERY_ENGINE, SPAWNED_TOO, VECTORISED, after, federation, identical

ROUNDS = 4


def trained(engine: str) -> State:
    return after(federation(engine=EVERY_ENGINE[engine], method=Switching()), ROUNDS)


@pytest.mark.parametrize("engine", ["workers", SPAWNED_TOO])
def test_vectors_that_change_with_the_rounds_have_the_bytes_of_one_process(engine: str) -> None:
    assert identical(trained(engine), trained("sequential"))


def test_stacked_clients_agree_on_vectors_that_change_with_the_rounds() -> None:
    torch.testing.assert_close(trained("vectorised").w, trained("sequential").w, rtol=0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_steps_are_compiled_for_all_vectors_also_in_processes(workers: int) -> None:
    compiled = after(federation(engine=replace(VECTORISED, compile=True, workers=workers), method=Switching()), ROUNDS)
    torch.testing.assert_close(compiled.w, trained("sequential").w, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "tensor", [torch.tensor(0.5), torch.empty(0, 3), torch.tensor([True, False]), torch.ones(2, 3).bfloat16().T]
)
def test_a_tensor_comes_back_from_a_pipe_with_all_its_bits(tensor: Tensor) -> None:
    back = buffers._tensor(buffers._plain(tensor))
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)
