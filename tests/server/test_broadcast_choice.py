"""A broadcast's choice of a start and an average, evaluation after evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fedsash.server.broadcast import Broadcast, Choice
from fedsash.tasks import Criterion

NAMES = ("a", "b", "c")
Values = list[dict[str, float]]
criteria = st.sampled_from([Criterion(), Criterion("rmse", "lower", share=False, target=None)])


@st.composite
def evaluations(draw: st.DrawFn) -> Values:
    """Values with many ties, of which some are no numbers; an average may not have seen a model yet."""
    share = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, math.nan])
    one = st.fixed_dictionaries({"model": share}, optional={name: share for name in NAMES})
    return draw(st.lists(one, max_size=12))


names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple)
broadcasts = st.builds(Broadcast, names, st.just("auto"), patience=st.integers(1, 4)) | st.builds(
    Broadcast, names, st.integers(1, 20)
)


def choices(broadcast: Broadcast, results: Values, criterion: Criterion, every: int = 1) -> list[Choice]:
    """The choice after each evaluation; there is one every so many rounds."""
    made = [broadcast.first()]
    for number, values in enumerate(results, 1):
        made.append(made[-1].after(every * number, values, criterion))
    return made[1:]


def height(value: float, criterion: Criterion) -> float:
    """A number that is higher for a better value, and lowest for one that is no number."""
    return -math.inf if math.isnan(value) else value if criterion.better == "higher" else -value


def better(broadcast: Broadcast, values: Mapping[str, float], criterion: Criterion) -> bool:
    """Whether the best of the averages that there are is better than the model."""
    heights = {name: height(value, criterion) for name, value in values.items()}
    return any(heights[name] > heights["model"] for name in broadcast.averages if name in heights)


@given(broadcast=broadcasts, results=evaluations(), criterion=criteria, every=st.integers(1, 5))
def test_a_broadcast_begins_with_the_first_unbroken_run_of_patience_successes(
    broadcast: Broadcast, results: Values, criterion: Criterion, every: int
) -> None:
    successes = [better(broadcast, values, criterion) for values in results]
    begun = [n for n in range(broadcast.patience, len(results) + 1) if all(successes[n - broadcast.patience : n])]
    made = choices(broadcast, results, criterion, every)
    for number, choice in enumerate(made, 1):
        found = every * begun[0] if begun and begun[0] <= number else None
        assert choice.start == (found if broadcast.start == "auto" else broadcast.start)


@given(broadcast=broadcasts, results=evaluations(), criterion=criteria)
def test_a_broadcast_never_stops_once_begun(broadcast: Broadcast, results: Values, criterion: Criterion) -> None:
    starts = [choice.start for choice in choices(broadcast, results, criterion)]
    begun = [start for start in starts if start is not None]
    assert len(set(begun)) <= 1 and starts[len(starts) - len(begun) :] == begun


@given(broadcast=broadcasts, results=evaluations(), criterion=criteria)
def test_the_best_average_is_chosen_and_on_a_tie_the_one_named_first(
    broadcast: Broadcast, results: Values, criterion: Criterion
) -> None:
    for choice, values in zip(choices(broadcast, results, criterion), results, strict=True):
        heights = {
            n: height(values[n], criterion) for n in broadcast.averages if not math.isnan(values.get(n, math.nan))
        }
        best = [name for name in heights if heights[name] == max(heights.values())] or list(broadcast.averages)
        assert choice.average == best[0]


@given(broadcast=broadcasts, results=evaluations(), criterion=criteria)
def test_better_counts_the_evaluations_since_the_last_that_was_not(
    broadcast: Broadcast, results: Values, criterion: Criterion
) -> None:
    successes = [better(broadcast, values, criterion) for values in results]
    for number, choice in enumerate(choices(broadcast, results, criterion), 1):
        assert choice.better == next((n for n in range(number) if not successes[number - 1 - n]), number)


@given(st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.0, math.nan]), st.integers(0, 9), criteria)
def test_a_tie_is_no_success(patience: int, value: float, count: int, criterion: Criterion) -> None:
    broadcast = Broadcast("a", "auto", patience=patience)
    made = choices(broadcast, [{"model": value, "a": value}] * count, criterion)
    assert all(choice == Choice(broadcast, "a", None, 0) for choice in made)


@given(start=st.none() | st.integers(1, 9), round=st.integers(0, 12))
def test_an_average_has_the_models_place_from_the_start_on(start: int | None, round: int) -> None:
    assert Choice(Broadcast("a"), "a", start).sends(round) == (start is not None and round >= start)
