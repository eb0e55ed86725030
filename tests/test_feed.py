"""The feed: a start and an average that held-out data choose, and the order of IMA's published code."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from worlds import ENGINES, after, data, federation, snapshot

from fedsash.averages import EMA, Window
from fedsash.config import ConfigError, parse
from fedsash.evaluation import Evaluation, Metrics
from fedsash.federation import Federation
from fedsash.feed import Choice, Feed
from fedsash.local import Client
from fedsash.methods import Scaffold
from fedsash.runs import Checkpoint, Fork, resume, run
from fedsash.servers import SGD, Adagrad, Adam, Server, Yogi
from fedsash.state import State, saved_rounds

AVERAGES = {"wima": Window(3), "ema": EMA(0.7)}
EVERY = Evaluation(every=1, last=1, held_out=0.4)
ALONE = Feed("wima", "auto", patience=2)
BOTH = Feed(("wima", "ema"), "auto", patience=2)
EITHER = Feed(("wima", "ema"), 2)
ADAPTIVE = {"start": ALONE, "start and average": BOTH, "average": EITHER}
SERVERS: dict[str, Server] = {
    "momentum": SGD(lr=0.5, momentum=0.9),
    "adagrad": Adagrad(lr=0.05, beta1=0.5),
    "adam": Adam(lr=0.02),
    "keras": Adam(lr=0.02, bias_correction="keras"),
    "yogi": Yogi(lr=0.02),
}


def noisy(**settings: Any) -> Federation:
    """A federation whose model jumps about, so that an average of it is now better than it, now worse."""
    defaults = {"client": Client(lr=2.0, batch=5, epochs=2), "averages": AVERAGES, "evaluation": EVERY}
    return federation(**defaults | settings)


def walk(f: Federation, rounds: int, evaluations: int = 1) -> tuple[list[Tensor], list[list[Metrics]], State]:
    """The model after each round, what each evaluation gave, and the last state."""
    models, results = [], []
    with f:
        state = f.start()
        for _ in range(rounds):
            state, _ = f.round(state)
            models.append(state.w.clone())
            results += [f.evaluate(state) for _ in range(evaluations)]
    return models, results, state


def held_out(metrics: list[Metrics]) -> dict[str, Metrics]:
    return {m.model: m for m in metrics if m.split == "held_out"}


def rows_of_the_feed(metrics: list[Metrics]) -> list[Metrics]:
    return [m for m in metrics if m.split == "feed"]


# The choice, evaluation after evaluation.

NAMES = ("a", "b", "c")
Accuracies = list[dict[str, float]]


@st.composite
def evaluations(draw: st.DrawFn) -> Accuracies:
    """Accuracies with many ties; an average may not have seen a model yet."""
    share = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    one = st.fixed_dictionaries({"model": share}, optional={name: share for name in NAMES})
    return draw(st.lists(one, max_size=12))


feeds = st.builds(
    Feed,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple),
    st.just("auto") | st.integers(0, 20),
    patience=st.integers(1, 4),
)


def choices(feed: Feed, results: Accuracies, every: int = 1) -> list[Choice]:
    """The choice after each evaluation; there is one every so many rounds."""
    made = [feed.first()]
    for number, accuracy in enumerate(results, 1):
        made.append(made[-1].after(every * number, accuracy))
    return made[1:]


def better(feed: Feed, accuracy: Mapping[str, float]) -> bool:
    """Whether the best of the averages that there are is more accurate than the model."""
    return any(accuracy[name] > accuracy["model"] for name in feed.averages if name in accuracy)


@given(feed=feeds, results=evaluations(), every=st.integers(1, 5))
def test_a_feed_begins_with_the_first_unbroken_run_of_patience_successes(
    feed: Feed, results: Accuracies, every: int
) -> None:
    successes = [better(feed, accuracy) for accuracy in results]
    begun = [n for n in range(feed.patience, len(results) + 1) if all(successes[n - feed.patience : n])]
    made = choices(feed, results, every)
    for number, choice in enumerate(made, 1):
        found = every * begun[0] - 1 if begun and begun[0] <= number else None
        assert choice.start == (found if feed.start == "auto" else feed.start)


@given(feed=feeds, results=evaluations())
def test_a_feed_never_stops_once_begun(feed: Feed, results: Accuracies) -> None:
    starts = [choice.start for choice in choices(feed, results)]
    begun = [start for start in starts if start is not None]
    assert len(set(begun)) <= 1 and starts[len(starts) - len(begun) :] == begun


@given(feed=feeds, results=evaluations())
def test_the_most_accurate_average_is_chosen_and_on_a_tie_the_one_named_first(feed: Feed, results: Accuracies) -> None:
    for choice, accuracy in zip(choices(feed, results), results, strict=True):
        seen = [name for name in feed.averages if name in accuracy]
        highest = max((accuracy[name] for name in seen), default=None)
        best = [name for name in seen if accuracy[name] == highest] or list(feed.averages)
        assert choice.average == best[0]


@given(feed=feeds, results=evaluations())
def test_better_counts_the_evaluations_since_the_last_that_was_not(feed: Feed, results: Accuracies) -> None:
    successes = [better(feed, accuracy) for accuracy in results]
    for number, choice in enumerate(choices(feed, results), 1):
        assert choice.better == next((n for n in range(number) if not successes[number - 1 - n]), number)


@given(patience=st.integers(1, 4), share=st.sampled_from([0.0, 0.5, 1.0]), count=st.integers(0, 9))
def test_a_tie_is_no_success(patience: int, share: float, count: int) -> None:
    feed = Feed("a", "auto", patience=patience)
    made = choices(feed, [{"model": share, "a": share}] * count)
    assert all(choice == Choice(feed, "a", None, 0) for choice in made)


@given(start=st.none() | st.integers(0, 9), round=st.integers(0, 12))
def test_an_average_is_sent_in_every_round_after_the_start(start: int | None, round: int) -> None:
    assert Choice(Feed("a"), "a", start).sends(round) == (start is not None and round >= start + 1)


# A run that finds its start is one without a feed, then one with that start.


@pytest.mark.parametrize("server", [SGD(), SGD(momentum=0.3), Adam(lr=0.3)])
def test_an_adaptive_run_is_no_feed_up_to_its_start_and_then_the_feed_with_that_start_bitwise(server: Server) -> None:
    rounds = 16
    found, _, state = walk(noisy(feed=ALONE, server=server), rounds)
    assert state.choice is not None and state.choice.start is not None
    start = state.choice.start
    assert 0 < start < rounds - 2, "the test needs rounds before and after"
    plain, _, _ = walk(noisy(server=server), rounds)
    given_, _, other = walk(noisy(feed=Feed("wima", start), server=server), rounds)
    assert other.choice is None
    assert all(torch.equal(a, b) for a, b in zip(found, given_, strict=True))
    equal = [torch.equal(a, b) for a, b in zip(found, plain, strict=True)]
    assert equal[: start + 1] == [True] * (start + 1) and not any(equal[start + 1 :])


@pytest.mark.parametrize("feed", [BOTH, EITHER])
def test_the_clients_receive_the_average_that_the_last_evaluation_chose(feed: Feed) -> None:
    sent_names = set()
    with noisy(feed=feed) as f:
        state = f.start()
        for _ in range(12):
            state, _ = f.round(state)
            accuracy = {name: m.accuracy for name, m in held_out(f.evaluate(state)).items()}
            choice = state.choice
            assert choice is not None and choice.average == max(feed.averages, key=lambda name: accuracy[name])
            begun = choice.start is not None and state.round > choice.start
            assert torch.equal(f.sent(state), f.models(state)[choice.average] if begun else state.w)
            sent_names.add(choice.average if begun else "model")
    assert sent_names == {"model", "wima", "ema"}


@pytest.mark.parametrize("average", AVERAGES)
def test_before_the_first_evaluation_the_average_named_first_is_fed(average: str) -> None:
    other = next(name for name in AVERAGES if name != average)
    chosen = after(noisy(feed=Feed((average, other), 1)), 4)
    assert torch.equal(chosen.w, after(noisy(feed=Feed(average, 1)), 4).w)


@pytest.mark.parametrize("feed", [None, Feed("wima", 2), Feed("wima", 2, "before"), Feed("wima", 2, "code")])
def test_evaluating_more_or_less_often_changes_no_training_unless_the_feed_is_adaptive(feed: Feed | None) -> None:
    none, once, twice = (walk(noisy(feed=feed, server=Adam()), 6, evaluations=n)[2] for n in (0, 1, 2))
    for state in (none, once, twice):
        state.best.clear()
        assert state.choice is None
    assert snapshot(none) == snapshot(once) == snapshot(twice)


@pytest.mark.parametrize("feed", ADAPTIVE)
def test_workers_choose_and_train_as_the_sequential_engine_bitwise(feed: str) -> None:
    one, other = (walk(noisy(feed=ADAPTIVE[feed], engine=ENGINES[e]), 9)[2] for e in ("sequential", "workers"))
    assert snapshot(one) == snapshot(other) and one.choice == other.choice


@pytest.mark.parametrize("feed", ADAPTIVE)
def test_the_rows_of_an_adaptive_feed_say_what_was_compared(feed: str) -> None:
    _, results, state = walk(noisy(feed=ADAPTIVE[feed]), 12)
    streak = 0
    for round, metrics in enumerate(results, 1):
        (row,) = rows_of_the_feed(metrics)
        compared = held_out(metrics)
        assert (row.round, row.accuracy, row.loss) == (round, compared[row.model].accuracy, compared[row.model].loss)
        assert row.more["held_out"] == {name: compared[name].accuracy for name in ("model", row.model)}
        streak = streak + 1 if compared[row.model].accuracy > compared["model"].accuracy else 0
        assert row.more["better"] == streak
    assert state.choice == Choice(ADAPTIVE[feed], row.model, row.more["start"], row.more["better"])
    assert row.row().keys() == {"round", "model", "split", "accuracy", "loss", "better", "start", "held_out"}


@pytest.mark.parametrize("feed", [None, Feed("wima", 2), Feed("wima", 2, "code")])
def test_where_nothing_is_chosen_there_is_no_row_of_it(feed: Feed | None) -> None:
    _, results, _ = walk(noisy(feed=feed), 4)
    assert not any(rows_of_the_feed(metrics) for metrics in results)
    assert all(held_out(metrics).keys() == {"model", *AVERAGES} for metrics in results)


def test_the_rows_of_a_feed_whose_average_has_seen_no_model_do_not_speak_of_the_test_set() -> None:
    """Until then the average's value is the model."""
    _, results, _ = walk(noisy(averages={"wima": Window(3, start=4)}, feed=ALONE), 3)
    for metrics in results:
        (row,) = rows_of_the_feed(metrics)
        assert row.more["held_out"].keys() == {"model"}
        assert row.accuracy == held_out(metrics)["model"].accuracy


def test_a_share_that_holds_out_nothing_is_refused() -> None:
    """A tenth of fewer than ten samples is none."""
    words = r"evaluation.held_out = 0.1: must hold out a sample of the largest client, which has 9, or be 0"
    with pytest.raises(ValueError, match=words):
        federation(data=data(sizes=(5, 9, 2, 7)), evaluation=Evaluation(held_out=0.1))


# Runs with folders: half a run resumed, and forks.


def start(f: Federation, rounds: int, out: Path, every: int = 50, **settings: Any) -> Any:
    return run(f, rounds, out=out, checkpoint=Checkpoint(every), progress=False, **settings)


def go_on(f: Federation, rounds: int, out: Path) -> Any:
    return resume(f, rounds, out, progress=False)


def files(folder: Path) -> dict[str, Any]:
    """What a run leaves of its models, its state, its choice and its metrics."""
    last = folder / "state" / f"{saved_rounds(folder / 'state')[-1]:08d}"
    parts = [*(folder / "models").iterdir(), *last.glob("*.safetensors"), folder / "metrics.jsonl"]
    choice = json.loads((last / "state.json").read_text())["choice"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in parts} | {"choice": choice}


@pytest.mark.parametrize("half", [3, 6, 8])
@pytest.mark.parametrize("feed", ADAPTIVE)
def test_half_a_run_resumed_is_the_run_and_chooses_the_same(feed: str, half: int, tmp_path: Path) -> None:
    """Before the first success, between the two that it takes, and after the feed has begun."""
    settings = {"feed": ADAPTIVE[feed]}
    whole = start(noisy(**settings), 2 * half, tmp_path / "whole")
    first = start(noisy(**settings), half, tmp_path / "halves").state.choice
    if feed != "average":
        assert (first.better, first.start) == {3: (0, None), 6: (1, None), 8: (3, 6)}[half]
    halves = go_on(noisy(**settings), 2 * half, tmp_path / "halves")
    assert files(tmp_path / "halves") == files(tmp_path / "whole")
    assert whole.state.choice == halves.state.choice is not None
    assert whole.history == halves.history


def test_half_a_run_resumed_around_the_codes_fresh_step_is_the_run(tmp_path: Path) -> None:
    for half in (2, 3):
        settings = {"feed": Feed("wima", 2, "code"), "server": Adam(), "method": Scaffold()}
        start(noisy(**settings), 6, tmp_path / f"whole-{half}")
        start(noisy(**settings), half, tmp_path / f"halves-{half}")
        go_on(noisy(**settings), 6, tmp_path / f"halves-{half}")
        assert files(tmp_path / f"halves-{half}") == files(tmp_path / f"whole-{half}")


def test_a_run_resumed_to_more_rounds_makes_the_choices_of_the_longer_run(tmp_path: Path) -> None:
    """The evaluations of what were to be the last rounds are in the metrics, and must not count for the choice."""
    settings = {"feed": ALONE, "evaluation": Evaluation(every=4, last=3, held_out=0.4)}
    whole = start(noisy(**settings), 16, tmp_path / "whole")
    start(noisy(**settings), 8, tmp_path / "halves")
    halves = go_on(noisy(**settings), 16, tmp_path / "halves")
    assert halves.state.choice == whole.state.choice
    assert torch.equal(halves.state.w, whole.state.w)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a feed whose state after 4 rounds is kept."""
    folder = tmp_path_factory.mktemp("source") / "plain"
    start(noisy(), 5, folder, every=4)
    return folder


@pytest.mark.parametrize("feed", [ALONE, BOTH])
def test_a_fork_into_an_adaptive_feed_chooses_from_the_fork_on(feed: Feed, source: Path, tmp_path: Path) -> None:
    result = start(noisy(feed=feed), 14, tmp_path / "fork", fork=Fork(source, 4))
    chosen = [row for row in result.history if row["split"] == "feed"]
    assert [row["round"] for row in chosen] == list(range(5, 15))
    assert result.state.forked == 4 and result.state.choice.start is not None
    begun = result.state.choice.start
    assert begun >= 4 + feed.patience - 1
    f = noisy(feed=feed)
    with f:
        state = after(f, 4)
        for _ in range(10):
            state, _ = f.round(state)
            f.evaluate(state)
    assert torch.equal(state.w, result.state.w) and state.choice == result.state.choice


def test_a_fork_without_a_feed_from_an_adaptive_run_goes_on_without(tmp_path: Path) -> None:
    start(noisy(feed=ALONE), 3, tmp_path / "source")
    result = start(noisy(), 6, tmp_path / "fork", fork=Fork(tmp_path / "source", 3))
    assert result.state.choice is None
    assert torch.equal(result.state.w, walk(noisy(), 6)[2].w)


def test_a_fork_into_a_feed_with_a_given_start_begins_there_whatever_its_source_waits_for(tmp_path: Path) -> None:
    start(noisy(feed=BOTH), 2, tmp_path / "source")
    result = start(noisy(feed=EITHER), 6, tmp_path / "fork", fork=Fork(tmp_path / "source", 2))
    assert result.state.choice is not None and result.state.choice.start == EITHER.start


def test_a_fork_that_does_not_have_the_average_that_its_source_chose_chooses_anew(tmp_path: Path) -> None:
    assert start(noisy(feed=EITHER), 4, tmp_path / "source").state.choice.average in AVERAGES
    averages = {"one": Window(2), "two": Window(3)}
    settings = {"feed": Feed(("one", "two"), 2), "averages": averages}
    result = start(noisy(**settings), 7, tmp_path / "fork", fork=Fork(tmp_path / "source", 4))
    assert result.state.choice is not None and result.state.choice.average in averages


# What cannot be.

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"average": "wima", "start": -1}, "Feed.start = -1: must be 0 or more"),
    ({"average": ()}, "Feed.average = (): must name at least one average"),
    ({"average": "wima", "patience": 0}, "Feed.patience = 0: must be at least 1"),
    ({"average": "wima", "order": "behind"}, "Feed.order = 'behind': must be 'after' or 'before' or 'code'"),
    ({"average": "wima", "start": "auto", "order": "before"}, "Feed.order = 'before': an adaptive feed must be"),
    ({"average": "wima", "start": "auto", "order": "code"}, "Feed.order = 'code': an adaptive feed must be"),
    ({"average": ("wima", "ema"), "order": "before"}, "Feed.order = 'before': an adaptive feed must be"),
    ({"average": ("wima", "ema"), "order": "code"}, "Feed.order = 'code': an adaptive feed must be"),
    ({"average": "ima"}, "Feed.average = 'ima': must be an average; there is wima, ema"),
    ({"average": ("wima", "ima"), "start": "auto"}, "Feed.average = 'ima': must be an average; there is wima, ema"),
    ({"average": "wima", "start": "auto"}, "Feed.start: to be chosen it needs held-out data: set evaluation.held_out"),
    ({"average": ("wima", "ema")}, "Feed.average: to be chosen it needs held-out data: set evaluation.held_out"),
]


@pytest.mark.parametrize(("options", "line"), REFUSED)
def test_a_feed_that_cannot_be_is_refused_with_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as error:
        federation(averages=AVERAGES, feed=Feed(**options))
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


FILE = """
averages.wima = { name = "window", size = 3 }
averages.ema = { name = "ema", decay = 0.7 }
"""


@pytest.mark.parametrize(
    ("content", "feed"),
    [
        ('feed = { average = ["wima", "ema"], start = "auto" }', Feed(("wima", "ema"), "auto")),
        ('feed = { average = "wima", start = "auto", patience = 5 }', Feed("wima", "auto", patience=5)),
        ('feed = { average = ["ema", "wima"], start = 7 }', Feed(("ema", "wima"), 7)),
        ('feed = { average = "wima", start = 7, order = "code" }', Feed("wima", 7, "code")),
    ],
)
def test_an_experiment_file_says_it_too_and_says_it_again(content: str, feed: Feed) -> None:
    experiment = parse(tomllib.loads(f"{content}\n{FILE}evaluation.held_out = 0.1"))
    assert experiment.feed == feed and experiment.evaluation.held_out == 0.1
    assert parse(experiment.table()) == experiment


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('feed = { average = "wima", start = "auto" }', "feed.start: to be chosen it needs held-out data"),
        ('feed = { average = ["wima", "ema"] }', "feed.average: to be chosen it needs held-out data"),
        ('feed = { average = "wima", start = "soon" }', 'feed.start = "soon": must be an integer or "auto"'),
        ('feed = { average = "wima", start = -1 }', "feed.start = -1: must be 0 or more"),
        ("feed.average = []", "feed.average = (): must name at least one average"),
        ('feed.average = ["wima", "ima"]', "feed.average = 'ima': must be an average; there is wima, ema"),
        ("feed.average = 3", "feed.average = 3: must be a string or a list of strings"),
        ('feed = { average = "wima", order = "late" }', "feed.order = "),
        ('feed = { average = "wima", start = "auto", order = "code" }', "feed.order = 'code': an adaptive feed"),
        ('feed = { average = "wima", patience = 0 }', "feed.patience = 0: must be at least 1"),
        ('feed = "wima"\nevaluation.held_out = 1.0', "evaluation.held_out = 1.0: must be at least 0 and below 1"),
    ],
)
def test_an_error_in_a_file_names_the_key_of_the_feed(content: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(tomllib.loads(f"{content}\n{FILE}"))
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


# The order of the published code.

START = 3


def in_order(order: Any, server: Server, start: int = START) -> Federation:
    return federation(averages={"ima": Window(3)}, feed=Feed("ima", start, order), server=server)


@pytest.mark.parametrize("server", SERVERS)
def test_code_is_before_and_no_feed_at_all_until_its_start_and_neither_from_then_on(server: str) -> None:
    code, before = (walk(in_order(order, SERVERS[server]), 6, 0)[0] for order in ("code", "before"))
    plain = walk(federation(server=SERVERS[server]), 6, 0)[0]
    for other in (before, plain):
        assert [torch.equal(a, b) for a, b in zip(code, other, strict=True)] == [t < START for t in range(6)]


@pytest.mark.parametrize("server", SERVERS)
def test_in_its_start_the_code_steps_from_empty_moments_and_forgets_that_it_did(server: str) -> None:
    """In the round after, the server goes on with the moments that it had before."""
    optimiser = SERVERS[server]
    with in_order("code", optimiser) as f:
        state = after(f, START)
        for moments in (optimiser.init(state.w), {name: value.clone() for name, value in state.server.items()}):
            sent, had = state.w.clone(), {name: value.clone() for name, value in state.server.items()}
            state, _ = f.round(state)
            distance = f.observers["ima"].value(state.averages["ima"], sent) - sent
            assert float(distance.norm()) > 0
            w, stepped = optimiser.step(sent, distance, moments)
            assert torch.equal(state.w, w)
            expected = had if state.round == START + 1 else stepped
            assert state.server.keys() == expected.keys()
            assert all(torch.equal(state.server[name], value) for name, value in expected.items())


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("lr", [1.0, 0.7])
def test_without_moments_code_and_before_are_the_same_bitwise(lr: float, start: int) -> None:
    code, before = (after(in_order(order, SGD(lr=lr), start), 6) for order in ("code", "before"))
    assert snapshot(code) == snapshot(before)


@pytest.mark.parametrize("order", ["before", "code", "after"])
def test_one_average_in_a_list_is_that_average_bitwise(order: Any) -> None:
    settings = {"averages": {"ima": Window(3)}, "server": Adam()}
    one, listed = (after(federation(**settings, feed=Feed(name, 1, order)), 5) for name in ("ima", ("ima",)))
    assert snapshot(one) == snapshot(listed)
