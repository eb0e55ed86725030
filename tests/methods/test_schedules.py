from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.methods.schedules import (
    LOCAL_SCHEDULES,
    SCHEDULES,
    Chained,
    Constant,
    Cosine,
    Cyclic,
    Exponential,
    Flat,
    Mild,
    SawTooth,
    Schedule,
    StepDecay,
    Warmup,
)

SCHEMES = ("exponential", "constant", "cyclic", "epochs", "none")
rounds = st.integers(0, 2000)
rates = st.floats(1e-3, 1.0)


def mild(start: int, scheme: Any, variant: Any = "paper", **options: Any) -> Mild:
    return Mild(start, scheme, variant=variant, **options)


@given(t=rounds, lr=rates)
def test_schedules_that_change_nothing_give_the_rate_bitwise(t: int, lr: float) -> None:
    for schedule in (Constant(), Exponential(1.0), StepDecay(7, 1.0), Cyclic(3, 1, 0.0), Cyclic(3, 4, lr)):
        assert schedule.lr(t, lr) == pytest.approx(lr, rel=1e-15)
    assert Constant().lr(t, lr) == lr == Cyclic(3, 1, 0.0).lr(t, lr)


@pytest.mark.parametrize("schedule", [Constant(), Exponential(0.9), Cosine(9), StepDecay(2, 0.1), Cyclic(0, 3, 0.0)])
def test_epochs_stay_unless_the_schedule_is_about_them(schedule: Schedule) -> None:
    assert [schedule.epochs(t, 5) for t in range(50)] == [5] * 50


@given(t=rounds, lr=rates)
def test_exponential_and_step_multiply(t: int, lr: float) -> None:
    exponential, step = Exponential(0.99), StepDecay(every=20, factor=0.5)
    assert exponential.lr(0, lr) == lr == step.lr(19, lr)
    assert exponential.lr(t + 1, lr) == pytest.approx(0.99 * exponential.lr(t, lr))
    assert step.lr(t + 20, lr) == 0.5 * step.lr(t, lr)


def test_cosine_falls_from_the_rate_to_the_floor_and_stays() -> None:
    schedule = Cosine(rounds=100, floor=0.01)
    rates = [schedule.lr(t, 0.2) for t in range(120)]
    assert rates[0] == 0.2 and rates[50] == pytest.approx((0.2 + 0.01) / 2)
    assert rates[100:] == [0.01] * 20
    assert all(a > b for a, b in pairwise(rates[:101]))


@given(start=rounds, cycle=st.integers(2, 40), t=rounds, lr=rates)
def test_cyclic_ends_each_cycle_at_the_low_rate(start: int, cycle: int, t: int, lr: float) -> None:
    schedule = Cyclic(start, cycle, low=lr / 100)
    value = schedule.lr(t, lr)
    if t < start:
        assert value == lr
    elif t % cycle == cycle - 1:
        assert value == pytest.approx(lr / 100)
    else:
        assert value == pytest.approx(schedule.lr(t + 1, lr) + (lr - lr / 100) / cycle)
        assert lr / 100 < value < lr


@given(rounds=st.integers(1, 50), t=rounds, lr=rates)
def test_a_warm_up_rises_in_equal_steps_to_the_rate_and_stays(rounds: int, t: int, lr: float) -> None:
    warmup = Warmup(rounds)
    assert [warmup.lr(k, lr) for k in (rounds - 1, rounds + t)] == [lr, lr]
    rising = [warmup.lr(k, lr) for k in range(rounds)]
    np.testing.assert_allclose(np.diff([0.0, *rising]), lr / rounds)


@given(t=rounds, lr=rates, others=st.lists(st.sampled_from([Exponential(0.99), StepDecay(20, 0.5), Warmup(30)])))
def test_chained_schedules_that_multiply_are_their_product(t: int, lr: float, others: list[Schedule]) -> None:
    schedules = (Exponential(0.995), *others)
    product = np.prod([schedule.lr(t, 1.0) for schedule in schedules])
    assert Chained(schedules).lr(t, lr) == pytest.approx(lr * product)
    assert not Chained(schedules).moves_epochs


@given(t=rounds, lr=rates)
def test_a_chain_has_cycles_on_a_base_that_decays(t: int, lr: float) -> None:
    base, cyclic = Exponential(0.99), Cyclic(10, 5, low=1e-4)
    assert Chained((base, cyclic)).lr(t, lr) == cyclic.lr(t, base.lr(t, lr))
    assert Chained((cyclic,)).lr(t, lr) == cyclic.lr(t, lr)


def test_a_chain_changes_epochs_if_one_of_it_does() -> None:
    chain = Chained((Mild(3, "epochs", period=2), Warmup(4)))
    assert chain.moves_epochs and [chain.epochs(t, 4) for t in range(8)] == [4, 4, 4, 4, 4, 3, 3, 2]


@given(start=rounds, t=rounds, lr=rates, scheme=st.sampled_from(SCHEMES), variant=st.sampled_from(["paper", "code"]))
def test_before_its_start_mild_exploration_is_the_base_decay(
    start: int, t: int, lr: float, scheme: str, variant: str
) -> None:
    schedule, base = mild(start, scheme, variant), Exponential(0.99)
    if t < start or scheme == "none":
        assert schedule.lr(t, lr) == base.lr(t, lr) and schedule.epochs(t, 5) == 5


@given(start=st.integers(0, 300), s=st.integers(0, 100), lr=rates)
def test_mild_exponential_goes_on_from_the_base_decay_with_its_own(start: int, s: int, lr: float) -> None:
    schedule = mild(start, "exponential")
    assert schedule.lr(start, lr) == pytest.approx(Exponential(0.99).lr(start, lr))
    assert schedule.lr(start + s + 1, lr) == pytest.approx(0.97 * schedule.lr(start + s, lr))
    base = mild(start, "exponential", late_decay=0.99)
    assert base.lr(start + s, lr) == pytest.approx(Exponential(0.99).lr(start + s, lr))


def test_mild_constant_is_the_floor() -> None:
    assert {mild(300, "constant").lr(t, 0.01) for t in range(300, 400)} == {5e-5}


def test_mild_cyclic_of_the_paper_falls_from_the_clients_rate_to_the_floor_in_each_period() -> None:
    schedule = mild(300, "cyclic")
    rates = np.array([schedule.lr(t, 0.01) for t in range(300, 400)]).reshape(5, 20)
    np.testing.assert_allclose(rates, np.broadcast_to(np.linspace(0.01, 5e-5, 20), (5, 20)))


def test_mild_cyclic_of_the_code_jumps_in_mid_period_to_almost_twice_its_top() -> None:
    schedule = mild(300, "cyclic", "code")
    high = 0.01 * 0.99**300
    rates = np.array([schedule.lr(t, 0.01) for t in range(300, 340)]).reshape(2, 20)
    slope = (high - 5e-5) / 10
    np.testing.assert_allclose(rates[0, :10], high - slope * np.arange(10))
    np.testing.assert_allclose(rates[0, 10:], 5e-5 + slope * np.arange(10, 20))
    np.testing.assert_array_equal(rates[0], rates[1])
    assert rates[0, 10] == pytest.approx(high) and 1.8 * high < rates.max() < 1.9 * high


def test_mild_cyclic_of_the_code_has_no_negative_rate_where_the_decay_has_passed_the_floor() -> None:
    high = 0.01 * 0.99**750
    assert high < 5e-5 and {mild(750, "cyclic", "code").lr(t, 0.01) for t in range(750, 770)} == {high, 5e-5}


def test_mild_epochs_drops_one_epoch_a_period_and_never_the_last() -> None:
    schedule = mild(300, "epochs")
    assert [schedule.epochs(t, 5) for t in (0, 299, 300, 319, 320, 340, 379, 380, 399, 1000)] == [
        *(5, 5, 5, 5),
        *(4, 3, 2),
        *(1, 1, 1),
    ]
    assert all(mild(300, scheme).epochs(t, 5) == 5 for scheme in SCHEMES if scheme != "epochs" for t in range(500))


@given(start=rounds, s=st.integers(0, 300), lr=rates)
def test_mild_epochs_of_the_code_starts_the_rate_again(start: int, s: int, lr: float) -> None:
    base = Exponential(0.99)
    assert mild(start, "epochs", "code").lr(start + s, lr) == base.lr(s, lr)
    assert mild(start, "epochs", "paper").lr(start + s, lr) == base.lr(start + s, lr)


@given(steps=st.integers(1, 500), rho=st.floats(0, 2))
def test_the_saw_tooth_falls_in_a_straight_line_with_the_published_sum(steps: int, rho: float) -> None:
    factors = SawTooth(rho).factors(np.arange(steps), np.array(steps))
    assert factors[0] == 1.0
    assert factors.sum() == pytest.approx((steps * (1 + rho) + 1 - rho) / 2)
    np.testing.assert_allclose(np.diff(factors), (rho - 1) / steps, atol=1e-12)


@given(steps=st.lists(st.integers(0, 40), min_size=1, max_size=5), rho=st.floats(0, 1))
def test_factors_of_many_clients_are_those_of_each(steps: list[int], rho: float) -> None:
    k = np.arange(max(steps))
    for schedule in (SawTooth(rho), Flat()):
        together = schedule.factors(k, np.array(steps)[:, None])
        assert together.shape == (len(steps), len(k)) and np.isfinite(together).all()
        for row, number in zip(together, steps, strict=True):
            np.testing.assert_array_equal(row[:number], schedule.factors(k[:number], np.array(number)))


@given(steps=st.integers(1, 500))
def test_a_saw_tooth_with_rho_one_is_flat_bitwise(steps: int) -> None:
    k, number = np.arange(steps), np.array(steps)
    np.testing.assert_array_equal(SawTooth(1.0).factors(k, number), Flat().factors(k, number))
    np.testing.assert_array_equal(Flat().factors(k, number), 1.0)


def test_every_schedule_is_registered() -> None:
    assert set(SCHEDULES.values()) == {Constant, Exponential, Cosine, StepDecay, Cyclic, Mild, Warmup, Chained}
    assert set(LOCAL_SCHEDULES.values()) == {Flat, SawTooth}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Chained(()), r"Chained\.schedules = \(\): must hold at least one schedule"),
        (lambda: mild(1, "exp"), r"Mild\.scheme = 'exp': must be 'exponential' or 'constant' or"),
        (lambda: mild(1, "none", "both"), r"Mild\.variant = 'both': must be 'paper' or 'code'"),
    ],
)
def test_impossible_settings_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
