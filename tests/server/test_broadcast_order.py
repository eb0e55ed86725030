"""A broadcast in the order of IMA's published code, beside those before and after the server's step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsash.averages import Window
from fedsash.methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, Server, ServerSGD
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from support.broadcasting import walk
from support.by_default import rotated, some
from support.worlds import after, federation, identical

SERVERS: dict[str, Server] = {
    "momentum": ServerSGD(lr=0.5, momentum=0.9),
    "adagrad": FedAdagrad(lr=0.05, beta1=0.5),
    "adam": FedAdam(lr=0.02),
    "keras": FedAdam(lr=0.02, bias_correction="keras"),
    "yogi": FedYogi(lr=0.02),
}

START = 3


def in_order(order: Any, server: Server, start: int = START) -> Federation:
    return federation(averages={"ima": Window(3)}, broadcast=Broadcast("ima", start, order), server=server)


@pytest.mark.parametrize("server", rotated(["adam", "momentum", "adagrad", "keras", "yogi"], turns=1))
def test_code_is_before_and_no_broadcast_at_all_until_its_start_and_neither_from_then_on(server: str) -> None:
    code, before = (walk(in_order(order, SERVERS[server]), 6, 0)[0] for order in ("code", "before"))
    plain = walk(federation(server=SERVERS[server]), 6, 0)[0]
    for other in (before, plain):
        assert [torch.equal(a, b) for a, b in zip(code, other, strict=True)] == [t < START for t in range(1, 7)]


@pytest.mark.parametrize("server", some(SERVERS, "momentum", "keras"))
def test_in_its_start_the_code_steps_from_empty_moments_and_forgets_that_it_did(server: str) -> None:
    """In the round after, the server goes on with the moments that it had before."""
    optimiser = SERVERS[server]
    with in_order("code", optimiser) as f:
        state = after(f, START - 1)
        for moments in (optimiser.init(state.w), {name: value.clone() for name, value in state.optimiser.items()}):
            sent, had = state.w.clone(), {name: value.clone() for name, value in state.optimiser.items()}
            state, _ = f.round(state)
            distance = f.observers.value(state, "ima", sent) - sent
            assert float(distance.norm()) > 0
            w, stepped = optimiser.step(sent, distance, moments)
            assert torch.equal(state.w, w)
            expected = had if state.round == START else stepped
            assert state.optimiser.keys() == expected.keys()
            assert all(torch.equal(state.optimiser[name], value) for name, value in expected.items())


@pytest.mark.parametrize("start, lr", rotated([1, 3], [1.0, 0.7], turns=1))
def test_without_moments_code_and_before_are_the_same_bitwise(lr: float, start: int) -> None:
    code, before = (after(in_order(order, ServerSGD(lr=lr), start), 6) for order in ("code", "before"))
    assert identical(code, before)


@pytest.mark.parametrize("order", some(["before", "code", "after"], "code"))
def test_one_average_in_a_list_is_that_average_bitwise(order: Any) -> None:
    settings = {"averages": {"ima": Window(3)}, "server": FedAdam()}
    one, listed = (after(federation(**settings, broadcast=Broadcast(name, 2, order)), 5) for name in ("ima", ("ima",)))
    assert identical(one, listed)
