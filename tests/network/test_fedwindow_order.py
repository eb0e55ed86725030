"""FedWindow's order of windows: two readings of the paper, and two opposite orders; and the order of its ring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsash.client import LocalTraining
from fedsash.network import Asynchronous, ConstantWindow, FedWindow, Network
from fedsash.network.fedwindow import Beginning
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.testing import after, quadratic_federation
from support.by_default import rotated

SHARE = 0.05
"""A training goes this share of the way from 1 to 0, which is the minimum of every client's loss: IID data."""
TRIPS = 50


def world() -> Federation:
    return quadratic_federation([1.0] * 5, [0.0] * 5, start=1.0, local=LocalTraining(lr=SHARE, batch="full", steps=1))


def left(size: int, start: Beginning) -> float:
    """How much is left of the distance after 50 trips of a run."""
    driver = Asynchronous(world(), Network(), FedWindow(ConstantWindow(size), start=start))
    return float(after(driver, TRIPS).w)


def by_hand(size: int, age: int, share: float = SHARE, trips: int = TRIPS) -> list[float]:
    """Equation 4 alone: the mean of the last W uploads, of which each is what is left of the model `age` steps ago."""
    w, uploads = [1.0], [1.0] * size
    for t in range(trips):
        uploads = [*uploads[1:], (1 - share) * w[max(t - age, 0)]]
        w.append(sum(uploads) / size)
    return w


@pytest.mark.parametrize("of, start", rotated([(2, 2), (3, 1), (4, 0), (5, 4)], ["own", "newest"]))
def test_a_run_with_equal_clients_is_the_scalar_recursion(of: tuple[int, int], start: Beginning) -> None:
    """`own` is the age of a client's own model: N - W - 1, and N - 1 for W = N, where the entering client leaves."""
    size, own = of
    age = own if start == "own" else 0
    assert left(size, start) == pytest.approx(by_hand(size, age)[-1], abs=1e-13)


def test_the_two_readings_give_opposite_orders_of_w_and_all_are_above_vanilla() -> None:
    """Own: W = 4 is best. Newest, as in the paper's proof: W = 2 is best, 3 and 4 are lower, as in its text."""
    vanilla = float(after(world(), TRIPS // 5).w)
    assert vanilla == pytest.approx((1 - SHARE) ** 10, abs=1e-13)
    own, newest = ([left(size, start) for size in (2, 3, 4)] for start in ("own", "newest"))
    assert newest[0] < newest[1] < newest[2] == own[2] < own[1] < own[0] < vanilla


@pytest.mark.parametrize("size, age", [(2, 0), (3, 0), (4, 0), (2, 2), (3, 1)])
def test_without_noise_the_papers_bound_is_exceeded_by_what_a_trip_falls_short_of_an_update(
    size: int, age: int
) -> None:
    """F(w) = w^2/2 and no noise, so equation 17 says: the sum of w_t^2 over all trips is at most F(w_0) / eta.

    Its equation 14 takes a whole update for each trip. A trip is worth 2/(2d + W + 1) of one, for models d versions
    old: for small eta the sum is (2d + W + 1)/2 times as large.
    """
    eta = 1e-3
    total = sum(w**2 for w in by_hand(size, age, eta, 20_000))
    assert total / (0.5 / eta) == pytest.approx((2 * age + size + 1) / 2, rel=0.01)


def test_where_the_whole_window_trains_in_each_step_a_step_is_an_update_as_the_proof_has_it() -> None:
    """Then the sum is F(w_0) / eta, over 1 - eta/2: equation 12 leaves out the mean gradient's part."""
    driver = Asynchronous(world(), Network(), FedWindow(ConstantWindow(2), slide=2, start="newest"))
    assert float(after(driver, TRIPS).w) == pytest.approx((1 - SHARE) ** TRIPS, abs=1e-13)
    total = 1 / (1 - (1 - SHARE) ** 2)
    assert total == pytest.approx(0.5 / SHARE / (1 - SHARE / 2), abs=1e-13)


CURVATURE, MINIMA = [0.5, 1.0, 1.5, 2.0, 2.5], [3.0, -1.0, 4.0, 1.0, -5.0]
RING = [3, 0, 4, 2, 1]


def path(ring: list[int], seed: int = 0, **settings: Any) -> list[float]:
    """The models of 12 steps, of clients whose losses are those of the clients in `ring`; no other draw is made."""
    curvature, minima = ([values[i] for i in ring] for values in (CURVATURE, MINIMA))
    scheduler = FedWindow(ConstantWindow(2), **settings)
    world = quadratic_federation(curvature, minima, seed=seed)
    driver = Asynchronous(world, Network(), scheduler)
    with world:
        state, models = world.start(), []
        for _ in range(12):
            state, _ = driver.round(state)
            models.append(float(state.w))
    return models


@pytest.mark.parametrize("settings", [{}, {"start": "newest", "slide": 2}, {"start": "newest", "pipelined": True}])
def test_a_rings_order_is_the_order_by_index_of_renumbered_clients(settings: dict[str, Any]) -> None:
    found = path([0, 1, 2, 3, 4], order=RING, **settings)
    assert found == path(RING, **settings)
    assert found != path([0, 1, 2, 3, 4], **settings)


def test_a_shuffled_ring_follows_from_the_seed() -> None:
    clients = [0, 1, 2, 3, 4]
    paths = [path(clients, seed, order="shuffled") for seed in (1, 1, 2)]
    assert paths[0] == paths[1] != paths[2]
    assert path(clients, 1) not in paths


def test_a_ring_that_was_shuffled_goes_on_where_it_stopped() -> None:
    def driver() -> Asynchronous:
        return Asynchronous(
            quadratic_federation(CURVATURE, MINIMA, seed=1), Network(), FedWindow(ConstantWindow(2), order="shuffled")
        )

    first, second = driver(), driver()
    with first.federation, second.federation:
        state = first.federation.start()
        for _ in range(5):
            state, _ = first.round(state)
        state = first.saved(state)
        for _ in range(7):
            state, _ = second.round(state)
    assert float(state.w) == path([0, 1, 2, 3, 4], 1, order="shuffled")[-1]


@pytest.mark.parametrize("given", [[1, 0], np.array([1, 0]), torch.tensor([1, 0])])
def test_a_rings_order_may_be_a_list_or_an_array(given: Any) -> None:
    assert FedWindow(order=given) == FedWindow(order=(1, 0))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("random", "must be 'index' or 'shuffled' or a list of integers"),
        ([0, 1.5], "must be 'index' or 'shuffled' or a list of integers"),
        ({0, 1}, "must be 'index', 'shuffled' or a list of all client ids"),
        ([], "must be 'index', 'shuffled' or a list of all client ids"),
        (np.array([[0, 1]]), "must be 'index', 'shuffled' or a list of all client ids"),
        ([0, 1, 1], "must name each client once"),
    ],
)
def test_what_is_no_order_of_a_ring_is_refused_at_once(given: Any, line: str) -> None:
    with pytest.raises(SettingError, match=f"FedWindow.order = .*: {line}"):
        FedWindow(order=given)


@pytest.mark.parametrize("given", [[0, 1, 2, 3], [0, 1, 2, 3, 5], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
def test_a_ring_without_one_of_the_clients_is_refused_when_its_run_begins(given: list[int]) -> None:
    with pytest.raises(SettingError, match="must name each of the 5 clients once, from 0 to 4"):
        path([0, 1, 2, 3, 4], order=given)
