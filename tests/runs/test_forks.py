"""Runs that start from a state of another one, and runs that stop for others to go on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsash import (
    EMA,
    Broadcast,
    Checkpoint,
    Evaluation,
    Federation,
    Fork,
    Personal,
    RunError,
    SettingError,
    Window,
    run,
)
from fedsash.methods import Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.methods.server_optimisers import FedAdam
from fedsash.vector.saved import saved_rounds
from support.by_default import full, rotated
from support.observing import AVERAGES, Crash, crash_at, final, go_on, interrupting, observed, rows, start
from support.personal import personal
from support.worlds import data, federation, mlp


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 rounds whose states after 4, 6 and 8 are there."""
    folder = tmp_path_factory.mktemp("source") / "a"
    run(observed(), 8, out=folder, checkpoint=Checkpoint(2, keep=(4,)), progress=False)
    return folder


def test_a_fork_with_a_client_more_is_told_what_a_method_with_client_state_needs(tmp_path: Path) -> None:
    start(federation(method=Scaffold(), sampling=Uniform(2), data=data((7, 12, 3))), 2, tmp_path / "a")
    line = r"a has 3 clients, and here are 4: with Scaffold .* a new run that begins with the model alone .*'round:2'"
    with pytest.raises(RunError, match=line):
        start(
            federation(method=Scaffold(), sampling=Uniform(2), data=data((7, 12, 3, 5))),
            4,
            tmp_path / "b",
            fork=Fork(tmp_path / "a", 2),
        )
    start(federation(sampling=Uniform(2), data=data((7, 12, 3))), 2, tmp_path / "c")
    forked = start(
        federation(sampling=Uniform(2), data=data((7, 12, 3, 5))), 4, tmp_path / "d", fork=Fork(tmp_path / "c", 2)
    )
    assert forked.state.round == 4


def test_a_fork_goes_on_as_its_source(source: Path, tmp_path: Path) -> None:
    result = start(observed(), 8, tmp_path / "b", fork=Fork(source, 4))
    assert final(tmp_path / "b").keys() == final(source).keys()
    assert final(tmp_path / "b") == final(source)
    assert result.tally.forked == 4


@pytest.mark.parametrize(
    "average, broadcasts", rotated(["window", "ema", "swa"], [("after", 4), ("after", 5), ("before", 5)], turns=2)
)
def test_a_fork_that_broadcasts_is_the_run_that_fed_from_there_on(
    average: str, broadcasts: tuple[Any, int], source: Path, tmp_path: Path
) -> None:
    order, broadcast_start = broadcasts
    settings = {"broadcast": Broadcast(average, start=broadcast_start, order=order)}
    start(observed(**settings), 8, tmp_path / "whole")
    start(observed(**settings), 8, tmp_path / "fork", fork=Fork(str(source), 4))
    assert final(tmp_path / "fork") == final(tmp_path / "whole")
    assert final(tmp_path / "fork") != final(source)
    server_state = [row for row in rows(source) if row["round"] <= 4]
    assert rows(tmp_path / "fork")[: len(server_state)] == server_state


@pytest.mark.parametrize(("order", "broadcast_start"), [("after", 4), full("before", 5)])
def test_a_fork_whose_broadcast_should_have_begun_before_broadcasts_from_the_fork_on(
    order: Any, broadcast_start: int, source: Path, tmp_path: Path
) -> None:
    for name, round in {"at the fork": broadcast_start, "from the start": 1}.items():
        start(
            observed(broadcast=Broadcast("window", start=round, order=order)), 6, tmp_path / name, fork=Fork(source, 4)
        )
    assert final(tmp_path / "at the fork") == final(tmp_path / "from the start")


def test_a_fork_needs_no_folder(source: Path, tmp_path: Path) -> None:
    result = run(observed(), 8, fork=Fork(source, 4), progress=False)
    assert result.history.rows() == rows(source) and result.state.round == 8


def test_a_fork_may_observe_other_averages(source: Path, tmp_path: Path) -> None:
    world = observed(averages={"window": Window(3), "new": EMA(0.5)})
    start(world, 6, tmp_path, fork=Fork(source, 4))
    names = {"model", "window", "new"}
    assert {path.stem.removesuffix("-best") for path in (tmp_path / "models").iterdir()} == names
    assert set(json.loads((tmp_path / "summary.json").read_text())["models"]) == names


def test_a_fork_of_a_round_that_is_not_saved_says_which_are(source: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"{source} has no state of round 5; saved are: 4, 6, 8 \(see checkpoint.keep\)"
    ):
        start(observed(), 8, tmp_path / "b", fork=Fork(source, 5))
    with pytest.raises(ValueError, match="nowhere holds no run"):
        start(observed(), 8, tmp_path / "b", fork=Fork(tmp_path / "nowhere", 5))
    with pytest.raises(ValueError, match="rounds = 3: must be at least the 4 of the fork's state"):
        start(observed(), 3, tmp_path / "b", fork=Fork(source, 4))
    assert not (tmp_path / "b" / "metrics.jsonl").exists()


def test_a_fork_of_another_experiment_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of another experiment: optimiser/m is missing there"):
        start(observed(server=FedAdam()), 8, tmp_path / "b", fork=Fork(source, 4))
    assert not (tmp_path / "b" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("there", "here", "changed"),
    [
        (personal(("0.weight",)), personal(("2.weight",)), "personal is "),
        (personal(), personal(Personal("classifier", alone=1)), "personal is "),
        (federation(buffers="local"), federation(buffers="average"), "buffers is 'local' there and 'average' here"),
    ],
)
def test_a_fork_keeps_what_stays_with_the_clients(
    there: Federation, here: Federation, changed: str, tmp_path: Path
) -> None:
    start(there, 2, tmp_path / "a")
    with pytest.raises(RunError, match=f"a fork must keep what its state depends on: {changed}"):
        start(here, 4, tmp_path / "b", fork=Fork(tmp_path / "a", 2))
    assert not (tmp_path / "b" / "metrics.jsonl").exists()


def test_a_fork_of_a_start_is_kept_as_well(tmp_path: Path) -> None:
    settings = {"model": mlp(seed=1)}
    start(observed(**settings), 4, tmp_path / "whole")
    assert start(interrupting(observed, step=1, **settings), 4, tmp_path / "source").state.round == 0
    with pytest.raises(Crash):
        start(observed(), 4, tmp_path / "b", fork=Fork(tmp_path / "source", 0), callbacks=[crash_at(2)])
    assert go_on(observed(), 4, tmp_path / "b").tally.forked == 0
    assert final(tmp_path / "b") == final(tmp_path / "whole")


@pytest.mark.parametrize("every", [1, pytest.param(50, marks=pytest.mark.full)])
def test_a_fork_that_crashed_resumes_from_the_fork(every: int, source: Path, tmp_path: Path) -> None:
    settings = {"broadcast": Broadcast("window", start=4)}
    start(observed(**settings), 8, tmp_path / "whole", fork=Fork(source, 4))
    with pytest.raises(Crash):
        start(observed(**settings), 8, tmp_path / "b", every, fork=Fork(source, 4), callbacks=[crash_at(7)])
    assert go_on(observed(**settings), 8, tmp_path / "b").tally.forked == 4
    assert final(tmp_path / "b") == final(tmp_path / "whole")


def test_a_fork_finds_averages_by_their_names_there(source: Path, tmp_path: Path) -> None:
    """All that the source has seen, its metrics and its best models are there under the new names."""
    theirs = {"w": "window", "e": "ema"}
    own = {name: AVERAGES[there] for name, there in theirs.items()}
    start(observed(averages=own), 8, tmp_path / "b", fork=Fork(source, 4, theirs))
    start(observed(averages=own), 8, tmp_path / "whole")
    assert final(tmp_path / "b") == final(tmp_path / "whole")


def test_a_fork_at_the_last_round_only_writes_its_end(source: Path, tmp_path: Path) -> None:
    federation = observed()
    result = start(federation, 4, tmp_path / "b", fork=Fork(source, 4))
    assert result.state.round == 4 and not result.interrupted
    assert federation.memory() == 0, "no engine was started"
    start(observed(), 4, tmp_path / "whole")
    assert final(tmp_path / "b") == final(tmp_path / "whole")


def test_a_fork_says_nothing_of_averages_that_are_not_its_own(source: Path, tmp_path: Path) -> None:
    start(observed(averages={"ema": AVERAGES["ema"]}), 6, tmp_path, fork=Fork(source, 4))
    assert {row["model"] for row in rows(tmp_path)} == {"model", "ema"}


def test_a_run_that_stops_early_is_the_beginning_of_the_whole_one(tmp_path: Path) -> None:
    """Its last evaluations are those of the whole run, not those of a run of its own length."""
    evaluation = Evaluation(every=3, last=2)
    result = start(observed(evaluation=evaluation), 8, tmp_path / "stem", until=5)
    assert result.interrupted and result.state.round == 5
    start(observed(evaluation=evaluation), 8, tmp_path / "b", fork=Fork(tmp_path / "stem", 5))
    start(observed(evaluation=evaluation), 8, tmp_path / "whole")
    assert final(tmp_path / "b") == final(tmp_path / "whole")


def test_a_fork_has_the_kept_states_of_the_run_that_it_continues(tmp_path: Path) -> None:
    """They are those of a run that was never forked, but for the mark that it was."""
    keep = Checkpoint(3, keep=(1, 2))
    for out, more in (("stem", {"until": 5}), ("b", {"fork": Fork(tmp_path / "stem", 5)}), ("whole", {})):
        run(observed(), 8, out=tmp_path / out, checkpoint=keep, progress=False, **more)
    assert saved_rounds(tmp_path / "b" / "state") == [1, 2, 6, 8] == saved_rounds(tmp_path / "whole" / "state")
    for kept in (1, 2):
        here, there = (tmp_path / out / "state" / f"{kept:08d}" for out in ("b", "whole"))
        assert {f.name: f.read_bytes() for f in here.glob("*.safetensors")} == {
            f.name: f.read_bytes() for f in there.glob("*.safetensors")
        }


@pytest.mark.parametrize(
    "here",
    [{"seed": 1}, full({"evaluation": Evaluation(every=2, held_out=0.4)}), {"data": data((9, 12, 7, 20, 8, 4))}],
    ids=str,
)
def test_a_fork_with_other_samples_begins_its_evaluations_anew_and_says_why(
    here: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be tested on what was trained before, so neither earlier numbers nor the best model are comparable."""
    there = {"evaluation": Evaluation(every=2, held_out=0.2), "averages": {}}
    start(federation(**there), 4, tmp_path / "a")
    result = start(federation(**there | here), 5, tmp_path / "b", fork=Fork(tmp_path / "a", 4))
    assert all(best.round == 5 for best in result.tally.best.values())
    assert "clients have other samples than before the fork" in caplog.text
    assert {row["round"] for row in rows(tmp_path / "b") if row["split"] in ("test", "held_out")} == {5}
    caplog.clear()
    start(federation(**there), 5, tmp_path / "c", fork=Fork(tmp_path / "a", 4))
    assert "other samples" not in caplog.text


def test_a_fork_that_chooses_its_best_model_by_another_rule_tells_of_the_model_that_it_keeps(tmp_path: Path) -> None:
    """What its source had by the other rule is not kept, even if it was better."""
    there = federation(evaluation=Evaluation(every=2, held_out=0.2), averages={})
    here = federation(evaluation=Evaluation(every=2, held_out=0.2, best_on="test"), averages={})
    start(there, 4, tmp_path / "a")
    result = start(here, 6, tmp_path / "b", fork=Fork(tmp_path / "a", 4))
    best, kept = result.summary["models"]["model"]["best"], result.tally.best["model"]
    assert (best["round"], best["value"], best["chosen_on"]) == (6, kept.value, "test") and kept.round == 6


def test_a_fork_whose_clients_remember_what_they_learned_keeps_their_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(federation(method=Scaffold(), averages={}), 2, tmp_path / "a")
    other = federation(method=Scaffold(), averages={}, data=data((9, 12, 7, 20, 8, 4)))
    with pytest.raises(RunError, match="a fork must keep the samples from which clients remember something: "):
        start(other, 4, tmp_path / "b", fork=Fork(tmp_path / "a", 2))
    assert not caplog.records


def test_a_round_below_zero_is_refused_when_the_fork_is_made() -> None:
    with pytest.raises(SettingError, match=r"Fork\.round = -1: must be at least 0"):
        Fork("runs/a", -1)
