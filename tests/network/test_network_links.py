"""The shared link: queues with known answers, a naive second account, and every byte in its place."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from simpy import Environment

from fedsash.network.links import Channel, Link, Transfer
from support.by_default import full, some

Floats = NDArray[np.float64]
RATE = 5.0


def sojourns(link: Link, times: Floats, sizes: Floats) -> tuple[Floats, Channel]:
    """How long transfers that begin at `times` are on the link; NaN where it was full."""
    env = Environment()
    channel = link.open(env)
    ends = np.full(len(times), math.nan)

    def ended(i: int) -> Callable[[object], None]:
        def note(event: object) -> None:
            ends[i] = env.now

        return note

    def arrivals() -> object:
        for i, (time, size) in enumerate(zip(times.tolist(), sizes.tolist(), strict=True)):
            yield env.timeout(max(time - env.now, 0.0))  # rounding may have gone past it
            transfer = channel.send(size)
            if transfer is not None:
                transfer.done.callbacks.append(ended(i))

    env.process(arrivals())
    env.run()
    return ends - times, channel


def poisson(load: float, sizes: Floats, seed: int) -> Floats:
    """Arrival times of a Poisson process that offers the link `load`."""
    between = np.random.default_rng(seed).exponential(sizes.mean() / RATE / load, len(sizes))
    return np.cumsum(between)


def interval(values: Floats, batches: int = 25) -> tuple[float, float]:
    """Mean and standard error of a stationary sequence, by batch means, without its first twentieth."""
    values = values[len(values) // 20 :]
    means = np.array([batch.mean() for batch in np.array_split(values, batches)])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(batches))


CUSTOMERS = 20_000
DRAWN = np.random.default_rng(7).exponential(1.0, CUSTOMERS)
SIZES = {
    "exponential": DRAWN,
    "constant": np.ones(CUSTOMERS),
    "two kinds": np.where(np.random.default_rng(8).random(CUSTOMERS) < 0.9, 0.2, 8.2),
}


@pytest.mark.parametrize("load", [full(0.5), 0.8])
@pytest.mark.parametrize(("queue", "factor"), [("exponential", 1.0), full("constant", 0.5)])
def test_first_come_waiting_is_that_of_mm1_and_md1_within_three_standard_errors(
    queue: str, factor: float, load: float
) -> None:
    """W_q = rho / (mu - lambda) for M/M/1, half of it for M/D/1 (Pollaczek and Khinchine)."""
    sizes = SIZES[queue]
    spent, _ = sojourns(Link(RATE, sharing="first-come"), poisson(load, sizes, seed=1), sizes)
    mean, error = interval(spent - sizes / RATE)
    expected = factor * load / (1 - load) * sizes.mean() / RATE
    assert error < 0.1 * expected and abs(mean - expected) < 3 * error


@pytest.mark.parametrize("queue", some(SIZES, "two kinds"))
def test_fair_sojourn_depends_on_the_mean_size_alone_within_three_standard_errors(queue: str) -> None:
    """M/G/1 processor sharing: E[T] = E[S] / (1 - rho), whatever the distribution of the sizes."""
    sizes, load = SIZES[queue], 0.6
    spent, _ = sojourns(Link(RATE), poisson(load, sizes, seed=2), sizes)
    mean, error = interval(spent)
    expected = sizes.mean() / RATE / (1 - load)
    assert error < 0.1 * expected and abs(mean - expected) < 3 * error


@pytest.mark.parametrize("sharing", ["fair", full("first-come")])
def test_a_full_link_refuses_the_share_that_mm1k_loses_within_three_standard_errors(sharing: str) -> None:
    """(1 - rho) rho^K / (1 - rho^(K + 1)); the number on the link is that of M/M/1/K with either sharing."""
    load, limit, sizes = 0.9, 4, SIZES["exponential"]
    link = Link(RATE, sharing=sharing, limit=limit)  # type: ignore[arg-type]
    spent, _ = sojourns(link, poisson(load, sizes, seed=3), sizes)
    mean, error = interval(np.isnan(spent).astype(float))
    assert abs(mean - (1 - load) * load**limit / (1 - load ** (limit + 1))) < 3 * error


def naive_ends(times: list[float], sizes: list[float]) -> list[float]:
    """Fair sharing, written out: from event to event, all that is left divided among all that are there."""
    left: dict[int, float] = {}
    ends = [0.0] * len(times)
    now, waiting = 0.0, sorted(range(len(times)), key=lambda i: times[i])
    while left or waiting:
        pace = RATE / max(len(left), 1)
        first = min(left, key=lambda i: left[i], default=None)
        ends_at = math.inf if first is None else now + left[first] / pace
        until = min(ends_at, times[waiting[0]] if waiting else math.inf)
        left = {i: rest - (until - now) * pace for i, rest in left.items()}
        now = until
        if first is not None and until == ends_at:
            ends[first] = now
            del left[first]
        else:
            i = waiting.pop(0)
            left[i] = sizes[i]
    return ends


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 20)), min_size=1, max_size=12))
@settings(max_examples=60)
def test_fair_sharing_is_the_fluid_written_out(jobs: list[tuple[float, float]]) -> None:
    times, sizes = np.array(sorted(time for time, _ in jobs)), np.array([size for _, size in jobs])
    spent, channel = sojourns(Link(RATE), times, sizes)
    assert times + spent == pytest.approx(naive_ends(times.tolist(), sizes.tolist()), rel=1e-9, abs=1e-9)
    assert channel.carried == pytest.approx(sizes.sum())


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 20), st.floats(0, 6)), min_size=1, max_size=12),
    st.sampled_from(["fair", "first-come"]),
    st.floats(0, 12),
)
@settings(max_examples=80)
def test_every_byte_that_left_has_arrived_or_is_lost_or_on_its_way(
    jobs: list[tuple[float, float, float]], sharing: str, until: float
) -> None:
    env = Environment()
    channel = Link(RATE, sharing=sharing).open(env)  # type: ignore[arg-type]
    transfers: list[Transfer] = []

    def job(time: float, size: float, patience: float) -> object:
        yield env.timeout(time)
        transfer = channel.send(size)
        assert transfer is not None
        transfers.append(transfer)
        yield env.timeout(patience)
        channel.cancel(transfer)

    for one in jobs:
        env.process(job(*one))
    env.run(until=until + 0.001)
    under_way = sum(transfer.size for transfer in transfers if not transfer.done.triggered)
    assert -1e-9 <= channel.carried - channel.arrived - channel.lost <= under_way + 1e-9
    env.run()
    assert channel.active == 0
    assert channel.carried == pytest.approx(channel.arrived + channel.lost, abs=1e-9)
    assert channel.arrived == pytest.approx(sum(t.size for t in transfers if t.done.value))
    assert channel.lost == pytest.approx(sum(t.sent for t in transfers if not t.done.value))
    assert all(0 <= t.sent <= t.size for t in transfers)


def test_equal_transfers_that_begin_together_end_together() -> None:
    spent, _ = sojourns(Link(RATE), np.zeros(1000), np.full(1000, 0.1))
    assert spent == pytest.approx(np.full(1000, 1000 * 0.1 / RATE), rel=1e-12)
