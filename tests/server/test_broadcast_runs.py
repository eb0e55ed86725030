"""Runs with folders: half a run that broadcasts an average, resumed, is the run; a fork chooses from the fork on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.averages import Window
from fedsash.evaluation import Evaluation
from fedsash.methods import Scaffold
from fedsash.methods.server_optimisers import FedAdam
from fedsash.runs import Fork
from fedsash.server.broadcast import Broadcast
from fedsash.vector.saved import saved_rounds
from support.broadcasting import ADAPTIVE, ALONE, AVERAGES, BOTH, EITHER, EVERY, noisy, walk
from support.by_default import rotated
from support.observing import final, go_on, start
from support.worlds import after, learned


def files(folder: Path) -> dict[str, Any]:
    """What a run leaves of its models, its state, its choice and its metrics."""
    last = folder / "state" / f"{saved_rounds(folder / 'state')[-1]:08d}"
    return final(folder) | {"choice": json.loads((last / "state.json").read_text())["choice"]}


@pytest.mark.parametrize("broadcast, half", rotated(ADAPTIVE, [6, 3, 8], turns=1))
def test_half_a_run_resumed_is_the_run_and_chooses_the_same(broadcast: str, half: int, tmp_path: Path) -> None:
    """Before the first success, between the two that it takes, and after the broadcast has begun."""
    settings = {"broadcast": ADAPTIVE[broadcast]}
    whole = start(noisy(**settings), 2 * half, tmp_path / "whole")
    first = start(noisy(**settings), half, tmp_path / "halves").state.choice
    if broadcast != "average":
        assert (first.better, first.start) == {3: (0, None), 6: (1, None), 8: (3, 7)}[half]
    halves = go_on(noisy(**settings), 2 * half, tmp_path / "halves")
    assert files(tmp_path / "halves") == files(tmp_path / "whole")
    assert whole.state.choice == halves.state.choice is not None
    assert whole.history.rows() == halves.history.rows()


@pytest.mark.parametrize("half", [pytest.param(2, marks=pytest.mark.full), 3])
def test_half_a_run_resumed_around_the_codes_fresh_step_is_the_run(half: int, tmp_path: Path) -> None:
    settings = {"broadcast": Broadcast("wima", 3, "code"), "server": FedAdam(), "method": Scaffold()}
    start(noisy(**settings), 5, tmp_path / "whole")
    start(noisy(**settings), half, tmp_path / "halves")
    go_on(noisy(**settings), 5, tmp_path / "halves")
    assert files(tmp_path / "halves") == files(tmp_path / "whole")


@pytest.mark.full
def test_a_run_resumed_to_more_rounds_makes_the_choices_of_the_longer_run(tmp_path: Path) -> None:
    """The evaluations of what were to be the last rounds are in the metrics, and must not count for the choice."""
    settings = {"broadcast": ALONE, "evaluation": Evaluation(every=4, last=3, held_out=0.4)}
    whole = start(noisy(**settings), 16, tmp_path / "whole")
    start(noisy(**settings), 8, tmp_path / "halves")
    halves = go_on(noisy(**settings), 16, tmp_path / "halves")
    assert halves.state.choice == whole.state.choice
    assert torch.equal(halves.state.w, whole.state.w)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a broadcast whose state after 4 rounds is kept."""
    folder = tmp_path_factory.mktemp("source") / "plain"
    start(noisy(), 5, folder, every=4)
    return folder


@pytest.mark.parametrize("broadcast", [pytest.param(ALONE, marks=pytest.mark.full), BOTH])
def test_a_fork_into_an_adaptive_broadcast_chooses_from_the_fork_on(
    broadcast: Broadcast, source: Path, tmp_path: Path
) -> None:
    result = start(noisy(broadcast=broadcast), 14, tmp_path / "fork", fork=Fork(source, 4))
    chosen = [row for row in result.history.rows() if row["split"] == "broadcast"]
    assert [row["round"] for row in chosen] == list(range(5, 15))
    assert result.tally.forked == 4 and result.state.choice.start is not None
    begun = result.state.choice.start
    assert begun >= 4 + broadcast.patience - 1
    f = noisy(broadcast=broadcast)
    with f:
        state = after(f, 4)
        for _ in range(10):
            state, _ = f.round(state)
            state = learned(f, state)
    assert torch.equal(state.w, result.state.w) and state.choice == result.state.choice


def test_a_fork_without_a_broadcast_from_an_adaptive_run_goes_on_without(tmp_path: Path) -> None:
    start(noisy(broadcast=ALONE), 3, tmp_path / "source")
    result = start(noisy(), 6, tmp_path / "fork", fork=Fork(tmp_path / "source", 3))
    assert result.state.choice is None
    assert torch.equal(result.state.w, walk(noisy(), 6)[2].w)


def test_a_fork_into_a_broadcast_with_a_given_start_begins_there_whatever_its_source_waits_for(tmp_path: Path) -> None:
    start(noisy(broadcast=BOTH), 2, tmp_path / "source")
    result = start(noisy(broadcast=EITHER), 6, tmp_path / "fork", fork=Fork(tmp_path / "source", 2))
    assert result.state.choice is not None and result.state.choice.start == EITHER.start


def test_a_fork_that_does_not_have_the_average_that_its_source_chose_chooses_anew(tmp_path: Path) -> None:
    assert start(noisy(broadcast=EITHER), 4, tmp_path / "source").state.choice.average in AVERAGES
    averages = {"one": Window(2), "two": Window(3)}
    settings = {"broadcast": Broadcast(("one", "two"), 3), "averages": averages}
    result = start(noisy(**settings), 7, tmp_path / "fork", fork=Fork(tmp_path / "source", 4))
    assert result.state.choice is not None and result.state.choice.average in averages


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"averages": AVERAGES | {"wima": Window(9)}}, id="another average"),
        pytest.param({"evaluation": replace(EVERY, metric="loss")}, id="another metric", marks=pytest.mark.full),
    ],
)
def test_a_fork_that_compares_something_else_than_its_source_did_decides_anew(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """An average that begins anew was never compared, and another metric has never decided."""
    source = start(noisy(broadcast=ALONE), 8, tmp_path / "source")
    assert source.state.choice.start is not None
    same = start(noisy(broadcast=ALONE), 9, tmp_path / "same", fork=Fork(tmp_path / "source", 8))
    assert same.state.choice.start == source.state.choice.start
    other = start(noisy(broadcast=ALONE, **settings), 9, tmp_path / "other", fork=Fork(tmp_path / "source", 8))
    assert other.state.choice.start is None and other.state.choice.better <= 1
