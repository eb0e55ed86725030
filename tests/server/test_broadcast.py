"""A run that finds its broadcast's start is one without a broadcast, then one with that start."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import torch

from fedsash.averages import Window
from fedsash.evaluation import Decision, Evaluation, Score
from fedsash.lab.config import ConfigError, parse
from fedsash.methods.server_optimisers import FedAdam, Server, ServerSGD
from fedsash.server.broadcast import Broadcast, Choice
from support.broadcasting import ADAPTIVE, ALONE, AVERAGES, BOTH, EITHER, noisy, walk
from support.by_default import rotated, some
from support.worlds import ENGINES, after, data, federation, identical


def held_out(metrics: list[Any]) -> dict[str, Score]:
    return {m.model: m for m in metrics if isinstance(m, Score) and m.split == "held_out"}


def decisions(records: list[Any]) -> list[Decision]:
    return [record for record in records if isinstance(record, Decision)]


# A run that finds its start is one without a broadcast, then one with that start.


@pytest.mark.parametrize("server", rotated([ServerSGD(momentum=0.3), ServerSGD(), FedAdam(lr=0.3)], turns=1))
def test_an_adaptive_run_is_no_broadcast_up_to_its_start_and_then_the_broadcast_with_that_start_bitwise(
    server: Server,
) -> None:
    rounds = 16
    found, _, state = walk(noisy(broadcast=ALONE, server=server), rounds)
    assert state.choice is not None and state.choice.start is not None
    start = state.choice.start
    assert 1 < start < rounds - 1, "the test needs rounds before and after"
    plain, _, _ = walk(noisy(server=server), rounds)
    given_, _, other = walk(noisy(broadcast=Broadcast("wima", start), server=server), rounds)
    assert other.choice is None
    assert all(torch.equal(a, b) for a, b in zip(found, given_, strict=True))
    equal = [torch.equal(a, b) for a, b in zip(found, plain, strict=True)]
    assert equal[:start] == [True] * start and not any(equal[start:])


@pytest.mark.parametrize("broadcast", some([BOTH, EITHER], BOTH))
def test_the_clients_receive_the_average_that_the_last_evaluation_chose(broadcast: Broadcast) -> None:
    sent_names = set()
    with noisy(broadcast=broadcast) as f:
        state = f.start()
        for _ in range(12):
            state, _ = f.round(state)
            metrics = f.evaluate(state)
            state, _ = f.learn(state, metrics)
            accuracy = {name: m["accuracy"] for name, m in held_out(metrics).items()}
            choice = state.choice
            assert choice is not None and choice.average == max(broadcast.averages, key=lambda name: accuracy[name])
            begun = choice.start is not None and state.round >= choice.start
            assert torch.equal(f.server_round.send(state)[0], f.models(state)[choice.average] if begun else state.w)
            sent_names.add(choice.average if begun else "model")
    assert sent_names == {"model", "wima", "ema"}


@pytest.mark.parametrize("average", AVERAGES)
def test_before_the_first_evaluation_the_average_named_first_is_fed(average: str) -> None:
    other = next(name for name in AVERAGES if name != average)
    chosen = after(noisy(broadcast=Broadcast((average, other), 2)), 4)
    assert torch.equal(chosen.w, after(noisy(broadcast=Broadcast(average, 2)), 4).w)


@pytest.mark.parametrize(
    "broadcast",
    rotated([Broadcast("wima", 3), Broadcast("wima", 3, "code"), None, Broadcast("wima", 3, "before")], turns=2),
)
def test_evaluating_more_or_less_often_changes_no_training_unless_the_broadcast_is_adaptive(
    broadcast: Broadcast | None,
) -> None:
    none, once, twice = (walk(noisy(broadcast=broadcast, server=FedAdam()), 6, evaluations=n)[2] for n in (0, 1, 2))
    for state in (none, once, twice):
        assert state.choice is None
    assert identical(none, once) and identical(once, twice)


@pytest.mark.parametrize("broadcast", rotated(["start and average", "start", "average"], turns=1))
def test_workers_choose_and_train_as_the_sequential_engine_bitwise(broadcast: str) -> None:
    one, other = (
        walk(noisy(broadcast=ADAPTIVE[broadcast], engine=ENGINES[e]), 9)[2] for e in ("sequential", "workers")
    )
    assert identical(one, other) and one.choice == other.choice


@pytest.mark.parametrize("broadcast", some(ADAPTIVE, "start and average"))
def test_the_rows_of_an_adaptive_broadcast_say_what_was_compared(broadcast: str) -> None:
    _, results, state = walk(noisy(broadcast=ADAPTIVE[broadcast]), 12)
    streak = 0
    for round, metrics in enumerate(results, 1):
        (row,) = decisions(metrics)
        compared = held_out(metrics)
        assert (row.round, row.values["accuracy"], row.loss) == (
            round,
            compared[row.average]["accuracy"],
            compared[row.average].loss,
        )
        assert row.held_out == {name: compared[name]["accuracy"] for name in ("model", row.average)}
        streak = streak + 1 if compared[row.average]["accuracy"] > compared["model"]["accuracy"] else 0
        assert row.better == streak
    assert state.choice == Choice(ADAPTIVE[broadcast], row.average, row.start, row.better)
    assert row.row().keys() == {"round", "model", "split", "accuracy", "loss", "better", "start", "held_out"}


@pytest.mark.parametrize("broadcast", [None, Broadcast("wima", 3), Broadcast("wima", 3, "code")])
def test_where_nothing_is_chosen_there_is_no_row_of_it(broadcast: Broadcast | None) -> None:
    _, results, _ = walk(noisy(broadcast=broadcast), 4)
    assert not any(decisions(metrics) for metrics in results)
    assert all(held_out(metrics).keys() == {"model", *AVERAGES} for metrics in results)


def test_the_rows_of_a_broadcast_whose_average_has_seen_no_model_do_not_speak_of_the_test_set() -> None:
    """Until then the average's value is the model."""
    _, results, _ = walk(noisy(averages={"wima": Window(3, start=4)}, broadcast=ALONE), 3)
    for metrics in results:
        (row,) = decisions(metrics)
        assert row.held_out.keys() == {"model"}
        assert row.values["accuracy"] == held_out(metrics)["model"]["accuracy"]


def test_a_share_that_holds_out_nothing_is_refused() -> None:
    """A tenth of fewer than ten samples is none."""
    words = r"evaluation.held_out = 0.1: must be 0, or hold out at least one sample of the largest client, which has 9"
    with pytest.raises(ValueError, match=words):
        federation(data=data(sizes=(5, 9, 2, 7)), evaluation=Evaluation(held_out=0.1))


# What cannot be.

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"average": ()}, "Broadcast.average = (): must name at least one average"),
    ({"average": "wima", "start": 5, "patience": 9}, 'Broadcast.patience = 9: has an effect with start = "auto" alone'),
    ({"average": "wima", "order": "behind"}, "Broadcast.order = 'behind': must be 'after' or 'before' or 'code'"),
    (
        {"average": "wima", "start": "auto", "order": "before"},
        "Broadcast.order = 'before': an adaptive broadcast must be",
    ),
    ({"average": "wima", "start": "auto", "order": "code"}, "Broadcast.order = 'code': an adaptive broadcast must be"),
    ({"average": ("wima", "ema"), "order": "before"}, "Broadcast.order = 'before': an adaptive broadcast must be"),
    ({"average": ("wima", "ema"), "order": "code"}, "Broadcast.order = 'code': an adaptive broadcast must be"),
    ({"average": "ima"}, "Broadcast.average = 'ima': must be an average; there is wima, ema"),
    (
        {"average": ("wima", "ima"), "start": "auto"},
        "Broadcast.average = 'ima': must be an average; there is wima, ema",
    ),
    (
        {"average": "wima", "start": "auto"},
        "Broadcast.start = 'auto': needs held-out samples: set evaluation.held_out",
    ),
    (
        {"average": ("wima", "ema")},
        "Broadcast.average = ('wima', 'ema'): needs held-out samples: set evaluation.held_out",
    ),
]


@pytest.mark.parametrize(("options", "line"), REFUSED)
def test_a_broadcast_that_cannot_be_is_refused_with_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as error:
        federation(averages=AVERAGES, broadcast=Broadcast(**options))
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


FILE = """
averages.wima = { name = "window", size = 3 }
averages.ema = { name = "ema", decay = 0.7 }
"""


@pytest.mark.parametrize(
    ("content", "broadcast"),
    [
        ('broadcast = { average = ["wima", "ema"], start = "auto" }', Broadcast(("wima", "ema"), "auto")),
        ('broadcast = { average = "wima", start = "auto", patience = 5 }', Broadcast("wima", "auto", patience=5)),
        ('broadcast = { average = ["ema", "wima"], start = 8 }', Broadcast(("ema", "wima"), 8)),
        ('broadcast = { average = "wima", start = 8, order = "code" }', Broadcast("wima", 8, "code")),
    ],
)
def test_an_experiment_file_says_it_too_and_says_it_again(content: str, broadcast: Broadcast) -> None:
    experiment = parse(tomllib.loads(f"{content}\n{FILE}evaluation.held_out = 0.1"))
    assert experiment.broadcast == broadcast and experiment.evaluation.held_out == 0.1
    assert parse(experiment.table()) == experiment


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            'broadcast = { average = "wima", start = "auto" }',
            "broadcast.start = 'auto': needs held-out samples",
        ),
        (
            'broadcast = { average = ["wima", "ema"] }',
            "broadcast.average = ('wima', 'ema'): needs held-out samples",
        ),
        ('broadcast = { average = "wima", start = "soon" }', 'broadcast.start = "soon": must be an integer or "auto"'),
        ("broadcast.average = []", "broadcast.average = (): must name at least one average"),
        ('broadcast.average = ["wima", "ima"]', "broadcast.average = 'ima': must be an average; there is wima, ema"),
        ("broadcast.average = 3", "broadcast.average = 3: must be a string or a list of strings"),
        ('broadcast = { average = "wima", order = "late" }', "broadcast.order = "),
        (
            'broadcast = { average = "wima", start = "auto", order = "code" }',
            "broadcast.order = 'code': an adaptive broadcast",
        ),
    ],
)
def test_an_error_in_a_file_names_the_key_of_the_broadcast(content: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(tomllib.loads(f"{content}\n{FILE}"))
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
