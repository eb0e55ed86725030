"""Rounds are counted in one way: `start = r` means, in every setting, from the model after r finished rounds on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsash import SWA, Broadcast, LocalTraining, Window
from fedsash.methods import FedFA
from fedsash.methods.schedules import Cyclic, Mild
from support.by_default import rotated, some
from support.worlds import after, federation

ROUNDS = 5


def changed(settings: dict[str, Any], base: dict[str, Any]) -> list[int]:
    """The rounds, counted from 1, whose model is another one than without these settings."""
    with federation(**settings) as one, federation(**base) as other:
        a, b, found = one.start(), other.start(), []
        for number in range(1, ROUNDS + 1):
            (a, _), (b, _) = one.round(a), other.round(b)
            if not torch.equal(a.w, b.w):
                found.append(number)
    return found


@pytest.mark.parametrize("start", some([1, 2, 4], 4))
def test_an_average_observes_that_model_first(start: int) -> None:
    averages = {"window": Window(9, start=start), "swa": SWA(start)}
    for rounds in range(1, ROUNDS + 1):
        with federation(averages=averages) as f:
            state = after(f, rounds)
            counts = {f.observers.count(state, name) for name in averages}
        assert counts == {max(rounds - start + 1, 0)}


@pytest.mark.parametrize("start", some([2, 4], 4))
def test_a_broadcast_takes_that_models_place_so_the_next_round_begins_from_the_average(start: int) -> None:
    averages = {"ima": Window(3)}
    assert changed({"averages": averages, "broadcast": Broadcast("ima", start)}, {}) == [*range(start + 1, ROUNDS + 1)]


@pytest.mark.parametrize("order, start", rotated(["before", "code"], [2, 4]))
def test_a_broadcast_before_the_server_optimiser_makes_that_model(order: Any, start: int) -> None:
    broadcast = {"averages": {"ima": Window(3)}, "broadcast": Broadcast("ima", start, order)}
    assert changed(broadcast, {}) == [*range(start, ROUNDS + 1)]


@pytest.mark.parametrize("start", some([0, 2, 4], 4))
def test_a_schedule_moves_the_rate_of_the_round_that_begins_from_that_model(start: int) -> None:
    for schedule in (Mild(start, "constant", decay=1.0), Cyclic(start, 2, 1e-3)):
        local = {"local": LocalTraining(lr=0.1, batch=5, schedule=schedule)}
        base = {"local": LocalTraining(lr=0.1, batch=5)}
        assert changed(local, base) == [*range(start + 1, ROUNDS + 1)]


@pytest.mark.parametrize("start", some([0, 2, 4], 4))
def test_fedfas_loss_and_calibration_begin_in_the_round_that_begins_from_that_model(start: int) -> None:
    never = ROUNDS + 1
    for late in (FedFA(anchors_from=start, calibrate_from=never), FedFA(0.0, calibrate_from=start)):
        assert changed({"method": late}, {"method": FedFA(0.0, calibration=0.0)}) == [*range(start + 1, ROUNDS + 1)]


@pytest.mark.parametrize("t_s", [1, 3])
def test_imas_t_s_is_the_schedules_start_and_one_less_than_the_broadcasts(t_s: int) -> None:
    """In the 0-based round t_s of IMA's code clients receive the model, with milder steps; then they get its mean."""
    settings = {"averages": {"ima": Window(3)}, "broadcast": Broadcast("ima", t_s + 1)}
    local = LocalTraining(lr=0.1, batch=5, schedule=Mild(t_s, "constant", decay=1.0))
    with federation(**settings, local=local) as f:
        state = f.start()
        for t in range(ROUNDS):
            assert torch.equal(f.server_round.send(state)[0], state.w) == (t <= t_s)
            assert (local.schedule.lr(t, 0.1) == 0.1) == (t < t_s)
            state, _ = f.round(state)
