"""The window's size from the network: the formula, the sawtooth, and how two of them share a link."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from simpy import Environment

from fedsash.methods.sampling import Uniform
from fedsash.network import (
    AIMDWindow,
    Asynchronous,
    CapacityWindow,
    ClientWindow,
    ConstantWindow,
    Control,
    FedAsync,
    FedWindow,
    Link,
    Network,
    SimulatedClients,
    Timing,
)
from fedsash.network.simulated import SimulatedSite, begin
from fedsash.network.site import Site
from fedsash.network.trip import Trip
from fedsash.settings.errors import SettingError
from fedsash.testing import after, quadratic_federation
from support.by_default import full, rotated
from support.places import HOW_TO

BYTES, RATE, TRAINING = 1000, 20_000.0, 2.0
FOREVER = 10**9
PAGE = (HOW_TO / "client-window.md").read_text()


def network(clients: int = 400, rate: float = RATE, **settings: object) -> Network:
    own = SimulatedClients(clients, seconds=TRAINING, noise="exponential")
    return Network(Link(rate, sharing="fair"), clients=own, bytes=BYTES, learning=False, **settings)  # type: ignore[arg-type]


def started(
    env: Environment, rule: ClientWindow, on: Network, other: SimulatedSite | None = None, seed: int = 0
) -> SimulatedSite:
    """A pipelined FedWindow at work, on another's link if one is given."""
    learner = Timing(on.clients.count, BYTES, Uniform(fraction=1.0), seed)
    site = begin(env, on, learner, rounds=FOREVER, seed=seed)
    site.up = other.up if other else site.up
    env.process(FedWindow(rule, start="newest", pipelined=True).run(site))
    return site


def mean_over_time(points: list[tuple[float, float]], since: float) -> float:
    times, sizes = np.array([point for point in points if point[0] >= since]).T
    return float((np.diff(times) * sizes[:-1]).sum() / (times[-1] - times[0]))


def test_the_capacity_is_the_largest_w_whose_uploads_fit_the_time_of_a_training() -> None:
    env = Environment()
    size = CapacityWindow().begin(started(env, ConstantWindow(1), network())).size
    assert size * BYTES / RATE <= TRAINING < (size + 1) * BYTES / RATE
    assert size == 40


@pytest.mark.parametrize(("rate", "size"), [(1.0, 1), (1e9, 400)])
def test_the_capacity_lies_between_1_and_n(rate: float, size: int) -> None:
    assert CapacityWindow().begin(started(Environment(), ConstantWindow(1), network(rate=rate))).size == size


def test_with_the_capacity_the_link_is_nearly_filled_and_uploads_hardly_wait() -> None:
    """A link in use for T / (T + b/R + waiting) of the time; twice the window hardly carries more, and waits."""
    found = {}
    for factor in (1, 2):
        env = Environment()
        site = started(env, ConstantWindow(40 * factor), network())
        env.run(until=400)
        found[factor] = (site.up.carried / (400 * RATE), site.log.waited / site.log.arrived)
    assert 0.8 < found[1][0] < 1 and found[1][1] < 0.25 * TRAINING
    assert found[2][0] < 1.25 * found[1][0] and found[2][1] > 0.7 * TRAINING


@pytest.mark.parametrize(("rate", "decrease"), [full(RATE, 0.5), (RATE / 4, 0.8)])
def test_the_sawtooth_finds_the_capacity_within_15_per_cent(rate: float, decrease: float) -> None:
    """Peaks near W_d = (R/b) * (T + d), a mean near (1 + decrease)/2 * W_d, and a link that is never idle."""
    delay = 3 * TRAINING
    env = Environment()
    site = started(env, AIMDWindow(5, increase=4, decrease=decrease, delay=delay), network(rate=rate))
    env.run(until=900)
    peak = rate / BYTES * (TRAINING + delay)
    points = [(t, w) for t, w in site.log.window.points if t > 300]
    peaks = [w for (_, w), (_, after) in pairwise(points) if after < w - 1]
    assert len(peaks) >= 2
    assert np.mean(peaks) == pytest.approx(peak, rel=0.15)
    assert mean_over_time(points, 300) == pytest.approx((1 + decrease) / 2 * peak, rel=0.15)
    assert site.up.carried > 0.97 * rate * (900 - 100)  # but for the climb from 5


@pytest.mark.full
def test_a_window_that_hears_of_failures_alone_stays_below_what_the_link_holds() -> None:
    """A link that holds 30 uploads refuses more: W saws below (R/b) * T + 30 = 70, and few uploads fail.

    Half of that is less than the 41 that fill the link, so it is idle at times.
    """
    env = Environment()
    crowded = network()
    crowded = Network(Link(RATE, limit=30), clients=crowded.clients, bytes=BYTES, learning=False)
    site = started(env, AIMDWindow(5), crowded)
    env.run(until=1000)
    assert max(w for _, w in site.log.window.points) < 1.3 * (RATE / BYTES * TRAINING + 30)
    assert site.log.failures < 0.01 * site.log.trips and site.up.carried > 0.75 * 1000 * RATE
    everyone = begin(Environment(), crowded, Timing(400, BYTES, Uniform(fraction=1.0), 0), rounds=FOREVER, seed=0)
    everyone.env.process(FedAsync().run(everyone))
    everyone.env.run(until=100)
    assert everyone.log.failures > 0.5 * everyone.log.trips


@pytest.mark.full
def test_two_adaptive_windows_share_a_link_fairly_wherever_they_begin() -> None:
    """Jain's index (sum x)^2 / (n * sum x^2) of what they carry: from windows of 150 and 2 to at least 0.97."""
    env = Environment()
    one = started(env, AIMDWindow(150, increase=4, delay=2 * TRAINING), network(), seed=1)
    two = started(env, AIMDWindow(2, increase=4, delay=2 * TRAINING), network(), other=one, seed=2)
    env.run(until=60)
    early = np.array([one.log.arrived, two.log.arrived])
    env.run(until=500)
    before = np.array([one.log.arrived, two.log.arrived])
    env.run(until=1500)
    x = np.array([one.log.arrived, two.log.arrived]) - before
    jain = [y.sum() ** 2 / (2 * (y**2).sum()) for y in (early.astype(float), x.astype(float))]
    assert jain[0] < 0.9 and jain[1] > 0.97


@pytest.mark.parametrize("rule", [ConstantWindow(6), AIMDWindow(start=6)])
def test_a_window_of_more_clients_than_there_are_is_refused(rule: ClientWindow) -> None:
    with pytest.raises(ValueError, match="must be at most the number of clients, 5"):
        started(Environment(), rule, network(clients=5))


class Sizes(Control):
    """A window that has these sizes, one after the other."""

    def __init__(self, sizes: tuple[Any, ...]) -> None:
        super().__init__(sizes[0])
        self.others = list(sizes[1:])

    def heard(self, trip: Trip) -> None:
        if self.others:
            self.size = self.others.pop(0)


@dataclass(frozen=True)
class OfSizes(ClientWindow):
    sizes: tuple[Any, ...]

    def begin(self, site: Site) -> Control:
        return Sizes(self.sizes)


@pytest.mark.parametrize(
    "sizes, pipelined",
    rotated([(0,), (6,), (2.5,), (None,), (True,), (2, 0), (2, 3, 6), (2, 2.5), (2, -1)], [True, False]),
)
def test_a_size_of_ones_own_rule_must_be_a_whole_number_of_clients(sizes: tuple[Any, ...], pipelined: bool) -> None:
    driver = Asynchronous(
        quadratic_federation([1.0] * 5, [0.0] * 5), Network(), FedWindow(OfSizes(sizes), pipelined=pipelined)
    )
    message = rf"^OfSizes: the window's size = {sizes[-1]}: must be a whole number of clients, from 1 to 5"
    with pytest.raises(SettingError, match=message):
        after(driver, 5)


def test_an_adaptive_window_needs_clients_at_work_side_by_side() -> None:
    site = begin(Environment(), network(), Timing(400, BYTES, Uniform(fraction=1.0), 0), rounds=1, seed=0)
    with pytest.raises(ValueError, match=r"FedWindow\.pipelined = False: must be true"):
        FedWindow(AIMDWindow()).run(site)


def test_the_rule_of_the_page_begins_with_one_client_and_has_one_more_after_every_five_uploads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (code,) = re.findall(r"`mine.py`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.setitem(sys.modules, "mine", mine := ModuleType("mine"))
    exec(code, vars(mine))
    env = Environment()
    site = started(env, mine.Growing(5), network(8))
    env.run(until=60)
    sizes = [size for _, size in site.log.window.points]
    assert sizes == [min(1 + uploads // 5, 8) for uploads in range(len(sizes))] and sizes[-1] == 8
