"""A federation and what surrounds it: types of numbers, the caller's model, processes that end."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
import torch

from fedsash.engines import LocalEngine
from fedsash.settings.errors import SettingError
from support.choices import AGGREGATIONS, METHODS, SERVERS, chequered
from support.worlds import after, data, federation, mlp

PLAIN = {"model": mlp(dtype=torch.float32)}
OTHERS: dict[str, dict[str, Any]] = {"aggregation": AGGREGATIONS, "server": SERVERS}


@pytest.mark.full  # the checks of every method, aggregation and server have it, too
@pytest.mark.parametrize("method, role", chequered(METHODS, OTHERS, of=4))
def test_a_float32_model_stays_one_with_every_aggregation_and_server(method: str, role: str) -> None:
    for name, other in OTHERS[role].items():
        state = after(federation(**PLAIN, method=METHODS[method], **{role: other}), 1)
        kinds = {tensor.dtype for _, tensor in state.tensors() if tensor.is_floating_point()}
        assert kinds == {torch.float32}, name


def test_a_float64_model_trains_on_float32_data() -> None:
    world = federation(data=data().cast(torch.float32, integers=False))
    state = after(world, 1)
    assert state.w.dtype == torch.float64 and world.evaluate(state)


def test_a_model_is_evaluated_before_the_first_round_whatever_the_engine_leaves_open() -> None:
    with federation(engine=LocalEngine("sequential", 1, 1, False, "contiguous", "auto")) as world:
        assert [metrics.round for metrics in world.evaluate(world.start())] == [0]


def test_workers_have_ended_when_they_are_closed() -> None:
    before = set(multiprocessing.active_children())
    world = federation(engine=LocalEngine("sequential", 4, 1, False, "contiguous", 1))
    world.round(world.start())
    ours = set(multiprocessing.active_children()) - before
    assert world.memory() > 0 and len(ours) == 4
    world.close()
    assert all(process.exitcode is not None for process in ours) and not ours & set(multiprocessing.active_children())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(SettingError, match=r"type of its weights = torch.b?float16: must be float32 or float64"):
        federation(model=mlp().to(dtype))
