"""Numbers by their labels: chosen, subtracted and reduced seed by seed, and what their intervals can say."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.lab.papers.claims import (
    Claims,
    Finding,
    above,
    agreed,
    below,
    between,
    either,
    every,
    falling,
    lacking,
    largest,
    noted,
    of_all,
    of_many,
    opposite,
    rising,
    smallest,
    with_all,
)
from fedsash.lab.papers.claims import (
    given as where,
)
from fedsash.lab.papers.numbers import Key, Numbers, Quantity, elementwise
from fedsash.settings.errors import SettingError

values = st.floats(-100, 100)
PRINTED = Numbers.exact(("row", "column"), {("A", "x"): 3.0, ("A", "y"): 1.0, ("B", "x"): 2.0, ("B", "y"): 1.5})


@given(st.lists(values, min_size=3, max_size=8), st.integers(1, 64))
def test_an_interval_is_students_and_of_several_each_is_wider(given: list[float], count: int) -> None:
    from scipy.stats import t

    low, high = Quantity(tuple(given)).interval(of=count)
    half = float(t.ppf(1 - 0.025 / count, len(given) - 1)) * stdev(given) / math.sqrt(len(given))
    assert low == pytest.approx(fmean(given) - half, abs=1e-9)
    assert high == pytest.approx(fmean(given) + half, abs=1e-9)


def test_of_many_numbers_one_that_seems_to_contradict_says_no_only_if_it_is_certain_among_so_many() -> None:
    """Its interval alone, -0.14 to -0.01, is below 0; one of 24 that hold together, -0.39 to 0.24, is not."""
    contradicting = [-0.05, -0.075, -0.1]
    assert above(Numbers.measured(("cell",), {(0,): contradicting})).holds is False
    others: dict[Key, list[float]] = {(cell,): [0.9, 1.0, 1.1] for cell in range(1, 24)}
    assert above(Numbers.measured(("cell",), {(0,): contradicting, **others})).holds is None
    assert above(Numbers.measured(("cell",), {(0,): [-0.99, -1.0, -1.01], **others})).holds is False
    unknown: dict[Key, list[float]] = {(cell,): [math.nan] * 3 for cell in range(1, 24)}
    assert above(Numbers.measured(("cell",), {(0,): contradicting, **unknown})).holds is False


def test_many_numbers_that_contradict_a_little_say_no_together() -> None:
    contradicting: dict[Key, list[float]] = {(cell,): [-0.05, -0.075, -0.1] for cell in range(24)}
    assert above(Numbers.measured(("cell",), contradicting)).holds is False


@pytest.mark.parametrize("given", [(1.0,), (1.0, 1.0), (1.0, 1.0, math.nan)])
def test_fewer_than_three_seeds_or_a_value_that_is_none_say_nothing(given: tuple[float, ...]) -> None:
    assert Quantity(given).interval() == (-math.inf, math.inf)
    assert above(Numbers.measured((), {(): given})).holds is None


def test_printed_numbers_are_exact() -> None:
    gain = PRINTED.at(column="x") - PRINTED.at(column="y")
    assert {key: quantity.values for key, quantity in gain.items()} == {("A",): (2.0,), ("B",): (0.5,)}
    assert above(gain) == Finding(True, "2 of 2 above 0: 2 (A), 0.5 (B)")
    assert above(gain, 1) == Finding(False, "1 of 2 above 1: 2 (A), 0.5 (B)")


def test_the_words_of_a_finding_leave_out_what_is_not_known_and_count_it() -> None:
    few = Numbers.exact(("row",), {("A",): 2.0, ("B",): math.nan})
    assert above(few).words == "1 of 2 above 0: 2 (A), 1 not known"
    many = Numbers.exact(("row",), {**{(str(i),): float(i) for i in range(1, 8)}, ("8",): math.nan})
    assert above(many).words == "7 of 8 above 0: from 1 (1) to 7 (7), 1 not known"
    unknown = Numbers.exact(("row",), {(str(i),): math.nan for i in range(8)})
    assert above(unknown).words == "0 of 8 above 0: 8 not known"


def test_seeds_are_paired_by_their_names() -> None:
    a = Numbers.measured((), {(): {"0": 1.0, "1": 5.0, "2": 9.0}})
    b = Numbers.measured((), {(): {"2": 8.0, "1": 4.0, "7": 0.0, "0": 0.0}})
    difference = (a - b)[()]
    assert difference.values == (1.0, 1.0, 1.0)
    assert difference.seeds == ("0", "1", "2")


def test_a_difference_can_be_certain_where_each_number_is_not() -> None:
    with_it = Numbers.measured((), {(): [10.1, 20.1, 30.2]})
    without = Numbers.measured((), {(): [10.0, 20.0, 30.0]})
    assert above(with_it, 30).holds is None
    assert above(with_it - without, 0.01).holds is None
    assert above(with_it - without, -0.1).holds is True


def test_a_dimension_that_the_other_lacks_is_gone_through() -> None:
    mean = Numbers.exact(("row",), {("A",): 1.0, ("B",): 2.0})
    difference = PRINTED - mean
    assert difference["A", "x"].mean == 2.0
    assert difference["B", "y"].mean == -0.5


def test_one_label_takes_its_dimension_away_and_a_list_keeps_it() -> None:
    assert PRINTED.at(row="A").dims == ("column",)
    assert PRINTED.at(row=["A"]).dims == ("row", "column")
    assert PRINTED.without(row="A").labels("row") == ["B"]
    with pytest.raises(SettingError, match="must be one of row, column"):
        PRINTED.at(line="A")


@given(st.lists(st.lists(values, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_reduction_is_made_in_each_seed(table: list[list[float]]) -> None:
    numbers = Numbers.measured(("round",), {(float(i),): row for i, row in enumerate(table)})
    assert numbers.over("round", max)[()].values == tuple(max(seed) for seed in zip(*table, strict=True))


def test_steps_go_from_each_label_to_the_next() -> None:
    numbers = Numbers.exact(("t",), {(1.0,): 1.0, (2.0,): 3.0, (4.0,): 2.0})
    assert {key: quantity.mean for key, quantity in numbers.steps("t").items()} == {(2.0,): 2.0, (4.0,): -1.0}
    assert rising(numbers, "t").holds is False
    assert falling(numbers, "t").holds is False
    assert rising(numbers.at(t=[1.0, 2.0]), "t").holds is True


def test_the_largest_and_the_smallest() -> None:
    column = PRINTED.at(column="x")
    assert largest(column, row="A").holds is True
    assert largest(column, row="B").holds is False
    assert smallest(column, row="B").holds is True


@pytest.mark.parametrize(
    ("spread", "holds"), [([1.0, 1.1, 1.2], True), ([0.0, 1.1, 2.2], None), ([5.0, 5.1, 5.2], False)]
)
def test_between_needs_the_whole_interval(spread: list[float], holds: bool | None) -> None:
    assert between(Numbers.measured((), {(): spread}), 0.5, 2.0).holds is holds


@given(st.sampled_from([True, False, None]), st.sampled_from([True, False, None]))
def test_findings_combine_in_three_values(a: bool | None, b: bool | None) -> None:
    one, other = Finding(a, "a"), Finding(b, "b")
    assert opposite(every(one, other)).holds == either(opposite(one), opposite(other)).holds
    assert every(one, other).holds is (False if False in (a, b) else None if None in (a, b) else True)


@given(st.dictionaries(st.tuples(st.sampled_from("AB"), st.integers(1, 4)), st.lists(values, min_size=1, max_size=4)))
def test_numbers_come_back_from_json(table: dict[tuple[str, int], list[float]]) -> None:
    import json

    numbers = Numbers.measured(("row", "round"), table)  # type: ignore[arg-type]
    assert dict(Numbers.load(json.loads(json.dumps(numbers.saved())))) == dict(numbers)


def test_seeds_of_two_sources_are_joined() -> None:
    mine = Numbers.measured((), {(): {"0": 1.0, "1": 2.0}})
    theirs = Numbers.measured((), {(): {"1": 9.0, "2": 3.0}})
    joined = mine.joined(theirs)[()]
    assert dict(zip(joined.seeds, joined.values, strict=True)) == {"0": 1.0, "1": 2.0, "2": 3.0}


def test_a_claim_without_evidence_names_what_is_missing_and_what_it_costs() -> None:
    claims = Claims("a paper")

    @claims.add("X1", "A", where="§1", cost="run X1: 1 h")
    def holds(gain: Numbers, loss: Numbers) -> Finding:
        """It gains
        and loses nothing.

        Decided by both.
        """
        return every(above(gain), below(loss))

    claim = claims["X1"]
    assert claim.says == "It gains and loses nothing."
    empty = Numbers.exact((), {})
    finding = claim.judged({"gain": PRINTED, "loss": empty})
    assert finding == Finding(None, "no loss; costs run X1: 1 h")
    assert claim.in_print() is None
    with pytest.raises(SettingError, match="is there already"):
        claims.add("X1", "A", where="", cost="")
    with pytest.raises(SettingError, match="there is none; a paper has X1"):
        claims["X2"]


def test_what_is_said_of_all_needs_a_number_for_each_combination() -> None:
    """No yes without one of them; a no stays, since one that contradicts is enough."""
    gain = PRINTED - 0.5
    assert of_all(above(gain), gain, row="AB", column="xy") == above(gain)
    assert of_all(above(gain), gain, column=["x"]) == above(gain)
    less = Numbers(gain.dims, {key: quantity for key, quantity in gain.items() if key != ("B", "y")})
    assert lacking(less, row="AB", column="xyz") == [("A", "z"), ("B", "y"), ("B", "z")]
    assert of_all(above(less), less, row="AB", column="xy") == Finding(
        None, "3 of 3 above 0: 2.5 (A, x), 0.5 (A, y), 1.5 (B, x); 1 of 4 are missing, such as B, y"
    )
    assert of_all(above(less, 1), less, row="AB", column="xy") == above(less, 1)
    assert of_all(Finding(None, "open"), less, row="AB", column="xy") == Finding(None, "open")
    with pytest.raises(SettingError, match="must be one of row, column"):
        of_all(above(less), less, line="A")


def test_what_is_said_of_always_needs_many_cases() -> None:
    assert of_many(Finding(True, "so"), 3, 3, "pairs") == Finding(True, "so")
    assert of_many(Finding(True, "so"), 2, 3, "pairs") == Finding(None, "so; 2 of 3 pairs")
    assert of_many(Finding(False, "so"), 2, 3, "pairs") == Finding(False, "so")


def test_a_function_of_several_numbers_goes_by_labels_and_seeds() -> None:
    rounds = Numbers.measured(("method",), {("A",): {"0": 5, "1": 9}, ("B",): {"0": 1}})
    base = Numbers.measured(("method",), {("A",): {"1": 7, "0": 4}})
    length = Numbers.exact((), {(): 8})
    found = elementwise(lambda a, b, most: a - b if max(a, b) <= most else math.nan, rounds, base, length)
    assert list(found) == [("A",)]
    assert found["A",].values[0] == 1 and math.isnan(found["A",].values[1])
    with pytest.raises(SettingError, match="must be among method"):
        elementwise(max, rounds, PRINTED)


def test_what_a_missing_number_could_turn_is_neither_yes_nor_no_without_it() -> None:
    gain = PRINTED - 0.5
    less = gain.without(row="B")
    for than in (0.0, 1.0):
        assert with_all(above(gain, than), gain, row="AB", column="xy") == above(gain, than)
        assert with_all(above(less, than), less, row="AB", column="xy") == Finding(
            None, f"{above(less, than).words}; 2 of 4 are missing, such as B, x"
        )


@given(st.sampled_from([True, False, None]), st.sampled_from([True, False, None]))
def test_a_finding_counts_where_its_condition_holds(condition: bool | None, holds: bool | None) -> None:
    found = where(Finding(condition, "a"), Finding(holds, "b"))
    assert found == Finding(holds if condition else None, "b; given a")


def test_readings_decide_where_they_agree() -> None:
    yes, no, none = Finding(True, "a"), Finding(False, "b"), Finding(None, "there are no numbers")
    assert agreed({"one": yes, "two": yes}) == Finding(True, "one: yes, a; two: yes, a")
    assert agreed({"one": yes, "two": no}) == Finding(None, "one: yes, a; two: no, b")
    assert agreed({"one": yes, "two": none}).holds is None
    assert agreed({"one": none, "two": none}) == none


def test_a_note_stands_behind_numbers() -> None:
    assert noted(Finding(True, "1 of 1"), "in print") == Finding(True, "1 of 1; in print")
    assert noted(above(PRINTED.at(row="C")), "in print") == Finding(None, "there are no numbers")


def test_findings_without_numbers_say_so_once() -> None:
    none = above(PRINTED.at(row="C"))
    assert every(none, none) == either(none, none) == none
    assert every(none, Finding(True, "a")).words == "there are no numbers; a"
