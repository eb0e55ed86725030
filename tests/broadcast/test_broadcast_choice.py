"""A broadcast's choice of a start and an average, evaluation after evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fedsash.broadcast import Broadcast, Choice

NAMES = ("a", "b", "c")
Accuracies = list[dict[str, float]]


@st.composite
def evaluations(draw: st.DrawFn) -> Accuracies:
    """Accuracies with many ties; an average may not have seen a model yet."""
    share = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    one = st.fixed_dictionaries({"model": share}, optional={name: share for name in NAMES})
    return draw(st.lists(one, max_size=12))


broadcasts = st.builds(
    Broadcast,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple),
    st.just("auto") | st.integers(1, 20),
    patience=st.integers(1, 4),
)


def choices(broadcast: Broadcast, results: Accuracies, every: int = 1) -> list[Choice]:
    """The choice after each evaluation; there is one every so many rounds."""
    made = [broadcast.first()]
    for number, accuracy in enumerate(results, 1):
        made.append(made[-1].after(every * number, accuracy))
    return made[1:]


def better(broadcast: Broadcast, accuracy: Mapping[str, float]) -> bool:
    """Whether the best of the averages that there are is more accurate than the model."""
    return any(accuracy[name] > accuracy["model"] for name in broadcast.averages if name in accuracy)


@given(broadcast=broadcasts, results=evaluations(), every=st.integers(1, 5))
def test_a_broadcast_begins_with_the_first_unbroken_run_of_patience_successes(
    broadcast: Broadcast, results: Accuracies, every: int
) -> None:
    successes = [better(broadcast, accuracy) for accuracy in results]
    begun = [n for n in range(broadcast.patience, len(results) + 1) if all(successes[n - broadcast.patience : n])]
    made = choices(broadcast, results, every)
    for number, choice in enumerate(made, 1):
        found = every * begun[0] if begun and begun[0] <= number else None
        assert choice.start == (found if broadcast.start == "auto" else broadcast.start)


@given(broadcast=broadcasts, results=evaluations())
def test_a_broadcast_never_stops_once_begun(broadcast: Broadcast, results: Accuracies) -> None:
    starts = [choice.start for choice in choices(broadcast, results)]
    begun = [start for start in starts if start is not None]
    assert len(set(begun)) <= 1 and starts[len(starts) - len(begun) :] == begun


@given(broadcast=broadcasts, results=evaluations())
def test_the_most_accurate_average_is_chosen_and_on_a_tie_the_one_named_first(
    broadcast: Broadcast, results: Accuracies
) -> None:
    for choice, accuracy in zip(choices(broadcast, results), results, strict=True):
        seen = [name for name in broadcast.averages if name in accuracy]
        highest = max((accuracy[name] for name in seen), default=None)
        best = [name for name in seen if accuracy[name] == highest] or list(broadcast.averages)
        assert choice.average == best[0]


@given(broadcast=broadcasts, results=evaluations())
def test_better_counts_the_evaluations_since_the_last_that_was_not(broadcast: Broadcast, results: Accuracies) -> None:
    successes = [better(broadcast, accuracy) for accuracy in results]
    for number, choice in enumerate(choices(broadcast, results), 1):
        assert choice.better == next((n for n in range(number) if not successes[number - 1 - n]), number)


@given(patience=st.integers(1, 4), share=st.sampled_from([0.0, 0.5, 1.0]), count=st.integers(0, 9))
def test_a_tie_is_no_success(patience: int, share: float, count: int) -> None:
    broadcast = Broadcast("a", "auto", patience=patience)
    made = choices(broadcast, [{"model": share, "a": share}] * count)
    assert all(choice == Choice(broadcast, "a", None, 0) for choice in made)


@given(start=st.none() | st.integers(1, 9), round=st.integers(0, 12))
def test_an_average_has_the_models_place_from_the_start_on(start: int | None, round: int) -> None:
    assert Choice(Broadcast("a"), "a", start).sends(round) == (start is not None and round >= start)
