from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash import LocalTraining
from fedsash.methods.sampling import SAMPLINGS, FixedClients, Function, Poisson, Sampling, Uniform, Weighted
from fedsash.methods.schedules import Schedule
from fedsash.testing import check_sampling
from support.worlds import after, federation

seeds = st.integers(0, 2**40)
rounds = st.integers(0, 10**6)
sizes_lists = st.lists(st.integers(1, 1000), min_size=1, max_size=40)
no_deadline = settings(deadline=None)


def equal_sizes(n: int) -> Any:
    return np.full(n, 10, dtype=np.int64)


@no_deadline
@given(data=st.data(), sizes=sizes_lists, round=rounds, seed=seeds)
def test_drawn_clients_are_distinct_sorted_and_in_range(
    data: st.DataObject, sizes: list[int], round: int, seed: int
) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    array = np.array(sizes, dtype=np.int64)
    for sampling in (Uniform(count), Weighted(count)):
        ids = sampling.clients(round, array, seed)
        assert ids.dtype == np.int64 and len(ids) == count
        assert (np.diff(ids) > 0).all() and ids[0] >= 0 and ids[-1] < len(sizes)
        assert np.array_equal(ids, sampling.clients(round, array, seed))


@no_deadline
@given(data=st.data(), sizes=sizes_lists, round=rounds, seed=seeds)
def test_a_larger_count_adds_clients_to_the_same_draw(
    data: st.DataObject, sizes: list[int], round: int, seed: int
) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    array = np.array(sizes, dtype=np.int64)
    for kind in (Uniform, Weighted):
        few, all_of_them = kind(count).clients(round, array, seed), kind(len(sizes)).clients(round, array, seed)
        assert set(few) <= set(all_of_them) == set(range(len(sizes)))


@no_deadline
@given(n=st.integers(1, 50), size=st.integers(1, 1000), round=rounds, seed=seeds, data=st.data())
def test_weighted_draws_equal_clients_as_uniform_does(
    n: int, size: int, round: int, seed: int, data: st.DataObject
) -> None:
    count, sizes = data.draw(st.integers(1, n)), np.full(n, size, dtype=np.int64)
    assert np.array_equal(Weighted(count).clients(round, sizes, seed), Uniform(count).clients(round, sizes, seed))


def test_rounds_and_seeds_draw_differently() -> None:
    draws = {tuple(Uniform(10).clients(round, equal_sizes(100), seed)) for round in range(30) for seed in range(30)}
    assert len(draws) == 900


def test_uniform_treats_clients_alike_and_rounds_as_independent() -> None:
    n, count, number = 100, 10, 3000
    taken = np.zeros((number, n))
    for round in range(number):
        taken[round, Uniform(count).clients(round, equal_sizes(n), seed=7)] = 1
    p = count / n
    scores = (taken.sum(0) - number * p) / np.sqrt(number * p * (1 - p))
    assert np.abs(scores).max() < 5 and 0.6 < scores.var() < 1.5
    overlaps = (taken[1:] * taken[:-1]).sum(1)
    assert overlaps.mean() == pytest.approx(count * p, abs=0.1)
    together = (taken.T @ taken)[np.triu_indices(n, 1)] / number
    assert together.mean() == pytest.approx(p * (count - 1) / (n - 1))
    assert together.std() == pytest.approx(np.sqrt(together.mean() / number), rel=0.1)


def test_weighted_draws_its_first_client_in_proportion_to_size() -> None:
    sizes = np.array([1, 2, 3, 4, 0], dtype=np.int64)
    number = 5000
    counts = np.zeros(5)
    for round in range(number):
        counts[Weighted(1).clients(round, sizes, seed=3)] += 1
    np.testing.assert_allclose(counts / number, sizes / 10, atol=4 * np.sqrt(0.25 / number))
    assert counts[4] == 0


@pytest.mark.parametrize(("clients", "asked"), [(1, 1), (9, 9), (10, 10), (100, 10)])
def test_ten_clients_are_asked_by_default_or_all_of_fewer(clients: int, asked: int) -> None:
    assert len(Uniform().clients(0, equal_sizes(clients), seed=0)) == Uniform().asked(clients) == asked


@pytest.mark.parametrize(
    ("fraction", "n", "count"), [(0.1, 100, 10), (0.29, 100, 29), (0.25, 10, 2), (0.01, 10, 1), (1.0, 7, 7)]
)
def test_a_fraction_is_rounded_down_to_at_least_one(fraction: float, n: int, count: int) -> None:
    sizes = equal_sizes(n)
    drawn = Uniform(fraction=fraction).clients(4, sizes, 2)
    assert np.array_equal(drawn, Uniform(count).clients(4, sizes, 2))


def test_a_fixed_list_begins_again_after_its_end() -> None:
    sampling = FixedClients(rounds=[[2, 0], [], np.array([3])])  # type: ignore[arg-type]
    drawn = [sampling.clients(round, equal_sizes(4), seed=0).tolist() for round in range(5)]
    assert drawn == [[0, 2], [], [3], [0, 2], []]
    assert sampling == FixedClients(((0, 2), (), (3,)))
    assert hash(sampling) == hash(FixedClients(((0, 2), (), (3,))))


def test_a_users_function_sees_round_sizes_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
        def largest(round, sizes, seed):
            return sizes.argsort()[::-1][: 1 + (round + seed) % 2].tolist()
    """
    (tmp_path / "users_sampling.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    sizes = np.array([1, 9, 5], dtype=np.int64)
    sampling = Function("users_sampling:largest")
    assert [sampling.clients(round, sizes, 1).tolist() for round in (0, 1)] == [[1, 2], [1]]
    assert Function(lambda round, sizes, seed: ()).clients(0, sizes, 1).size == 0


@no_deadline
@given(round=rounds, seed=seeds, low=st.floats(0, 0.99), high=st.floats(0, 0.99), data=st.data())
def test_whether_a_client_answers_depends_on_no_other_client(
    round: int, seed: int, low: float, high: float, data: st.DataObject
) -> None:
    sizes, ids = equal_sizes(30), np.arange(30)
    low, high = sorted((low, high))
    some = data.draw(st.lists(st.sampled_from(range(30)), unique=True).map(sorted).map(np.array)).astype(np.int64)
    mask = Uniform(30, dropout=high).answers(round, ids, sizes, seed)
    assert np.array_equal(Weighted(3, dropout=high).answers(round, some, sizes, seed), mask[some])
    assert (mask <= Uniform(30, dropout=low).answers(round, ids, sizes, seed)).all()


def test_dropout_has_its_probability_and_leaves_the_draw_alone() -> None:
    sizes, answered = equal_sizes(100), 0
    for round in range(2000):
        asked = Uniform(10).clients(round, sizes, seed=5)
        ids = Uniform(10, dropout=0.3).clients(round, sizes, seed=5)
        assert set(ids) <= set(asked)
        answered += len(ids)
    assert answered / 20_000 == pytest.approx(0.7, abs=0.02)


TRACE = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=np.bool_)


def test_a_trace_says_who_is_within_reach_and_begins_again(tmp_path: Path) -> None:
    np.save(tmp_path / "trace.npy", TRACE)
    np.savetxt(tmp_path / "trace.csv", TRACE, delimiter=",", fmt="%d")
    for trace in (TRACE, str(tmp_path / "trace.npy"), str(tmp_path / "trace.csv")):
        everybody = Uniform(4, trace=trace)
        reached = [everybody.clients(round, equal_sizes(4), seed=0).tolist() for round in range(4)]
        assert reached == [[0, 2], [], [0, 1, 2, 3], [0, 2]]


def test_a_client_answers_if_neither_dropout_nor_trace_keeps_it_away() -> None:
    sizes, ids = equal_sizes(4), np.arange(4)
    for round in range(20):
        both = Uniform(4, dropout=0.4, trace=TRACE).answers(round, ids, sizes, 1)
        dropout = Uniform(4, dropout=0.4).answers(round, ids, sizes, 1)
        assert np.array_equal(both, dropout & TRACE[round % 3])


def test_poisson_takes_each_client_at_its_rate_independently_of_the_others() -> None:
    """The shares of rounds with client i, and with clients i and j, are q and q^2 within five standard errors."""
    rate, rounds, n = 0.3, 4000, 6
    drawn = [Poisson(rate).clients(round, equal_sizes(n), seed=1) for round in range(rounds)]
    taken = np.array([np.isin(np.arange(n), ids) for ids in drawn], dtype=float)
    share = taken.T @ taken / rounds
    expected = np.where(np.eye(n), rate, rate**2)
    assert (np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / rounds)).all()
    assert taken.sum(1).min() == 0 and taken.sum(1).max() == n


@pytest.mark.parametrize(
    "sampling", [Uniform(3), Uniform(fraction=0.4, dropout=0.5), Poisson(0.4), Poisson(0.9, dropout=0.2)]
)
def test_the_expected_number_of_clients_is_the_mean_over_rounds(sampling: Uniform | Poisson) -> None:
    counts = [len(sampling.clients(round, equal_sizes(10), seed=0)) for round in range(2000)]
    assert np.mean(counts) == pytest.approx(sampling.expected(10), abs=5 * np.sqrt(10 / 4 / 2000))


def test_every_sampling_is_registered() -> None:
    assert set(SAMPLINGS.values()) == {Uniform, Poisson, Weighted, FixedClients, Function}
    assert all(issubclass(kind, Sampling) for kind in SAMPLINGS.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(10, 0.5), r"Uniform\.count, fraction = \(10, 0\.5\): must be one of them"),
        (lambda: FixedClients(()), r"FixedClients\.rounds = \(\): must hold at least one list"),
        (
            lambda: FixedClients(((0, 1), (2, 2))),
            r"FixedClients\.rounds\[1\] = \[2, 2\]: must hold distinct client ids",
        ),
        (
            lambda: FixedClients(((-1,),)),
            r"FixedClients\.rounds\[0\] = \[-1\]: must hold distinct client ids, integers of at least 0",
        ),
        (
            lambda: FixedClients(((0.5,),)),
            r"FixedClients\.rounds = \(\(0\.5,\),\): must be a list of lists of integers",
        ),  # type: ignore[arg-type]
        (lambda: FixedClients((0, 1)), r"FixedClients\.rounds = \(0, 1\): must be a list of lists of integers"),  # type: ignore[arg-type]
        (lambda: Function("sample"), r"Function\.function = 'sample': must be 'package\.module:name'"),
        (lambda: Function("no_such_package:f"), r"can't be imported: No module named 'no_such_package'"),
        (lambda: Function("math:pi"), r"Function\.function = 'math:pi': is of Python's standard library"),
        (
            lambda: Function("torch:float32"),
            r"Function\.function = 'torch:float32': must be a class or a function that",
        ),
        (lambda: Function(3), r"Function\.function = 3: must be a function"),  # type: ignore[arg-type]
        (lambda: Uniform(1, trace="trace.txt"), r"Uniform\.trace = 'trace\.txt': must be a \.npy or \.csv file"),
        (lambda: Uniform(1, trace="missing.npy"), r"Uniform\.trace = 'missing\.npy': can't be read"),
        (lambda: Uniform(1, trace=np.array([[0, 2]])), r"array of shape \(1, 2\)': must hold only 0 and 1"),
        (lambda: Uniform(1, trace=np.array([True])), r"one row for each round and one column for each client"),
    ],
)
def test_impossible_settings_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        make()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Uniform(5), r"Uniform\.count = 5: must be at most the number of clients, 4"),
        (Weighted(4), r"Weighted\.count = 4: must be at most the number of clients with samples, 3"),
        (FixedClients(((0,), (4,))), r"FixedClients\.rounds: highest id = 4: must be below 4"),
        (Uniform(2, trace=np.ones((2, 5), dtype=np.bool_)), r"Uniform\.trace: clients = 5: must be .* clients, 4"),
        (
            Function(lambda *_: [0, 0]),
            r"answer in round 1 = \[0, 0\]: must hold distinct client ids, integers from 0 to 3",
        ),
        (Function(lambda *_: [4]), r"answer in round 1 = \[4\]"),
        (Function(lambda *_: [-1]), r"answer in round 1 = \[-1\]"),
        (Function(lambda *_: [1.0]), r"answer in round 1 = \[1\.0\]"),
        (Function(lambda *_: [True]), r"answer in round 1 = \[True\]"),
        (Function(lambda *_: None), r"answer in round 1 = None"),
        (Function(lambda *_: [[0, 1]]), r"answer in round 1 = \[\[0, 1\]\]"),
    ],
)
def test_what_does_not_fit_the_clients_is_refused_in_round_zero(sampling: Sampling, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampling.clients(0, np.array([3, 0, 1, 2], dtype=np.int64), seed=0)


@dataclass(frozen=True)
class Listed(Sampling):
    """Answers with a list of its own."""

    ids: tuple[int, ...]

    def draw(self, round: int, sizes: Any, seed: int) -> Any:
        return list(self.ids)


def test_ones_own_may_draw_a_list_in_any_order() -> None:
    check_sampling(Listed((5, 0, 3)))
    assert Listed((5, 0, 3)).clients(0, equal_sizes(6), seed=0).tolist() == [0, 3, 5]
    assert Listed(()).clients(0, equal_sizes(6), seed=0).tolist() == []


def test_ones_own_that_draws_a_client_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Listed\.draw: answer in round 1 = \[0, 0\]: must hold distinct client ids"):
        Listed((0, 0)).clients(0, equal_sizes(6), seed=0)


@dataclass(frozen=True)
class Present(Sampling):
    """Asks everybody; who answers is said in a form of one's own."""

    form: Callable[[Any], Any]

    def draw(self, round: int, sizes: Any, seed: int) -> Any:
        return np.arange(len(sizes))

    def answers(self, round: int, ids: Any, sizes: Any, seed: int) -> Any:
        return self.form(ids % 2 == 1)


def test_who_answers_is_said_by_a_mask_and_numbers_are_refused_since_they_would_pick_clients() -> None:
    assert Present(np.ndarray.tolist).clients(0, equal_sizes(4), seed=0).tolist() == [1, 3]
    assert Present(np.ndarray.tolist).clients(0, equal_sizes(0), seed=0).tolist() == []
    line = r"^Present\.answers: mask of round 1 = \[0, 1, 0, 1\]: must be True or False for each of the 4 ids$"
    with pytest.raises(ValueError, match=line):
        Present(lambda mask: mask.astype(int)).clients(0, equal_sizes(4), seed=0)


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_plan_of_ones_own_may_have_few_rounds(rounds: int) -> None:
    def planned(round: int, sizes: Any, seed: int) -> Any:
        return [[0, 1], [2], [0, 3]][:rounds][round]

    world = federation(sampling=Function(planned), local=LocalTraining(schedule=Listing((0.1, 0.2, 0.3)[:rounds])))
    assert [ids.tolist() for ids in world.training().sample] == [[0, 1], [2], [0, 3]][:rounds]
    after(world, rounds)
    with pytest.raises(IndexError):
        Function(lambda round, sizes, seed: [][round]).first(equal_sizes(4), seed=0)


@dataclass(frozen=True)
class Listing(Schedule):
    """The rate of each round."""

    rates: tuple[float, ...]

    def lr(self, t: int, lr: float) -> float:
        return self.rates[t]


@dataclass(frozen=True)
class Remembers(Sampling):
    """Draws at random and remembers what."""

    drawn: dict[int, Any] = field(default_factory=dict)

    def draw(self, round: int, sizes: Any, seed: int) -> Any:
        return self.drawn.setdefault(round, np.sort(np.random.default_rng().permutation(len(sizes))[:3]))


def test_one_that_remembers_its_own_draws_is_found() -> None:
    with pytest.raises(AssertionError, match="it must be a pure function"):
        check_sampling(Remembers(), range(1, 40))
