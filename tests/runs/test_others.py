"""Runs that go on with other averages, another length or another rule of what is best: nothing is mixed up."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash import EMA, SWA, Broadcast, Evaluation, FedAdam, Federation, Fork, RunError, SettingError, Window, resume
from fedsash.extend import Average
from fedsash.optimisers import FedAdagrad
from fedsash.runs import Checkpoint
from fedsash.runs.model_files import lost_models
from fedsash.testing import identical
from support.by_default import full, some
from support.observing import final, go_on, start
from support.worlds import federation

EVERY = Evaluation(every=4, last=1)


def world(**averages: Average) -> Federation:
    return federation(averages=averages)


OTHERS: dict[str, tuple[Average, Average]] = {
    "start of an EMA": (EMA(0.9), EMA(0.9, "zero")),
    "decay": (EMA(0.9), EMA(0.5)),
    "start of an SWA": (SWA(1), SWA(5)),
    "every": (Window(2), Window(2, every=2)),
}


@pytest.mark.parametrize("name", some(OTHERS, "start of an EMA", "every"))
def test_an_average_with_other_settings_is_refused_by_a_resume_and_begins_anew_in_a_fork(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = OTHERS[name]
    start(world(e=before), 4, tmp_path / "a")
    with pytest.raises(RunError, match=r"averages\.e is .* there and .* here\. To change it on purpose, fork"):
        go_on(world(e=after), 6, tmp_path / "a")
    with caplog.at_level(logging.WARNING):
        found = start(world(e=after), 6, tmp_path / "f", fork=Fork(tmp_path / "a", 4))
    assert "an average begins anew: e is " in caplog.text
    fresh = start(world(new=after), 6, tmp_path / "n", fork=Fork(tmp_path / "a", 4))
    assert torch.equal(found.vectors()["e"], fresh.vectors()["new"])
    assert [row for row in found.history.rows() if row["model"] == "e" and row["round"] <= 4] == []


@pytest.mark.parametrize("again", ["a resume", "a fork"])
def test_an_average_that_joins_later_begins_at_the_model_there_and_not_at_the_first_one(
    again: str, tmp_path: Path
) -> None:
    before = start(world(), 4, tmp_path / "a")
    w = before.state.w.clone()
    joined = world(e=EMA(0.75, "initial"), w=Window(3))
    if again == "a resume":
        found = go_on(joined, 5, tmp_path / "a")
    else:
        found = start(joined, 5, tmp_path / "f", fork=Fork(tmp_path / "a", 4))
    torch.testing.assert_close(found.vectors()["e"], 0.75 * w + 0.25 * found.state.w, rtol=0, atol=1e-14)
    assert torch.equal(found.vectors()["w"], found.state.w)


def test_the_model_of_an_average_that_is_left_out_is_not_among_those_of_the_end(tmp_path: Path) -> None:
    start(world(e=EMA(0.9)), 2, tmp_path)
    (tmp_path / "models" / "mine.safetensors").touch()
    go_on(world(), 3, tmp_path)
    assert {file.stem for file in (tmp_path / "models").iterdir()} == {"model", "mine"}
    assert lost_models(tmp_path) == []


def test_a_fork_whose_server_goes_on_from_what_another_one_remembered_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both call it m and v, and Adagrad's v is a sum where Adam's is a mean."""
    start(federation(server=FedAdagrad()), 3, tmp_path / "a")
    for server, said in ((FedAdam(), True), (FedAdagrad(lr=0.5), False)):
        caplog.clear()
        start(federation(server=server), 4, tmp_path / type(server).__name__, fork=Fork(tmp_path / "a", 3))
        line = "FedAdam goes on from what FedAdagrad has remembered (m, v), which may mean something else"
        assert (line in caplog.messages) == said


def test_a_fork_keeps_the_order_of_the_models_tensors(tmp_path: Path) -> None:
    class Pair(nn.Module):
        """Two layers of equal shapes, in the order of their names."""

        def __init__(self, *names: str) -> None:
            super().__init__()
            for name in names:
                self.add_module(name, nn.Linear(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.get_submodule("a")(x) + 2 * self.get_submodule("b")(x)
            return out

    start(federation(model=Pair("a", "b").double()), 2, tmp_path / "a")
    start(federation(model=Pair("a", "b").double()), 3, tmp_path / "same", fork=Fork(tmp_path / "a", 2))
    with pytest.raises(RunError, match=r"a fork must keep what its state depends on: layout\.order is"):
        start(federation(model=Pair("b", "a").double()), 3, tmp_path / "b", fork=Fork(tmp_path / "a", 2))


def test_a_window_of_global_models_does_not_go_on_as_one_of_clients_means(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def adam(broadcast: Broadcast | None) -> Federation:
        return federation(averages={"e": Window(9)}, server=FedAdam(0.1), broadcast=broadcast)

    start(adam(None), 4, tmp_path / "a")
    with caplog.at_level(logging.WARNING):
        found = start(adam(Broadcast("e", 9, "before")), 6, tmp_path / "f", fork=Fork(tmp_path / "a", 4))
    assert "what e observes is 'global models' there and \"clients' means\" here" in caplog.text
    assert sorted(found.state.past["e"].rounds) == [5, 6], "it holds what it has observed itself"


def test_one_average_of_the_source_goes_on_in_one_of_ours(tmp_path: Path) -> None:
    start(world(w=Window(2)), 2, tmp_path / "a")
    with pytest.raises(SettingError, match=r"must be another average for each: a and w would both go on from w"):
        start(world(a=Window(2), w=Window(2)), 4, tmp_path / "f", fork=Fork(tmp_path / "a", 2, {"a": "w"}))


@pytest.mark.parametrize("keep", [(), full((4,))])
def test_what_a_fork_keeps_changes_none_of_its_averages(keep: tuple[int, ...], tmp_path: Path) -> None:
    """The source had lost the window in between, which an older state still has."""
    start(world(w=Window(3)), 4, tmp_path / "a", every=2)
    resume(world(), 8, tmp_path / "a", checkpoint=Checkpoint(2, keep=(4,)), progress=False)
    found = start(world(w=Window(3)), 9, tmp_path / f"{keep}", fork=Fork(tmp_path / "a", 8), every=50)
    assert torch.equal(found.vectors()["w"], found.state.w)


def test_a_run_that_ends_where_it_was_stopped_is_evaluated_there(tmp_path: Path) -> None:
    whole = start(federation(evaluation=EVERY), 6, tmp_path / "whole")
    start(federation(evaluation=EVERY), 10, tmp_path / "cut", until=6)
    found = go_on(federation(evaluation=EVERY), 6, tmp_path / "cut")
    assert {row["round"] for row in found.history.rows() if row["split"] == "test"} == {4, 6}
    assert found.summary["models"] == whole.summary["models"] and final(tmp_path / "cut") == final(tmp_path / "whole")
    start(federation(evaluation=EVERY), 10, tmp_path / "source", until=6)
    fork = start(federation(evaluation=EVERY), 6, tmp_path / "fork", fork=Fork(tmp_path / "source", 6))
    assert fork.summary["models"] == whole.summary["models"]
    before = (tmp_path / "fork" / "metrics.jsonl").read_bytes()
    go_on(federation(evaluation=EVERY), 6, tmp_path / "fork")
    assert (tmp_path / "fork" / "metrics.jsonl").read_bytes() == before


def test_what_is_best_is_kept_by_one_rule(tmp_path: Path) -> None:
    def held(**rule: Any) -> Federation:
        return federation(evaluation=Evaluation(every=1, last=1, held_out=0.3, **rule))

    start(held(), 4, tmp_path / "a")
    with pytest.raises(RunError, match=r"has kept its best models by held_out/accuracy: evaluation\.metric and "):
        go_on(held(metric="loss"), 6, tmp_path / "a")
    fork = start(held(metric="loss"), 4, tmp_path / "f", fork=Fork(tmp_path / "a", 4))
    assert {best.by for best in fork.tally.best.values()} <= {"held_out/loss"}


def test_a_best_model_that_no_evaluation_has_chosen_is_not_kept_from_now_on(tmp_path: Path) -> None:
    """Without held-out samples nothing was best; by the test set the best round may lie before the resume."""
    start(federation(evaluation=EVERY), 4, tmp_path)
    with pytest.raises(RunError, match=r"has kept its best models by held_out/accuracy: evaluation\.metric and "):
        go_on(federation(evaluation=replace(EVERY, best_on="test")), 6, tmp_path)
    go_on(federation(evaluation=EVERY), 6, tmp_path)


def test_before_the_first_evaluation_the_rule_may_change(tmp_path: Path) -> None:
    start(federation(evaluation=EVERY), 8, tmp_path, until=2)
    found = go_on(federation(evaluation=replace(EVERY, best_on="test")), 8, tmp_path)
    assert {best.by for best in found.tally.best.values()} == {"test/accuracy"}


def test_a_renamed_average_with_models_of_its_own_shares_no_files_with_a_new_one(tmp_path: Path) -> None:
    """The source sends `w` before the server's step; the fork has it as `v`, and sends a `w` of its own."""
    start(federation(averages={"w": Window(2)}, broadcast=Broadcast("w", order="before")), 3, tmp_path / "a", every=1)

    def fork() -> Federation:
        return federation(averages={"v": Window(2), "w": Window(2)}, broadcast=Broadcast("w", order="before"))

    how = Fork(tmp_path / "a", 3, {"v": "w", "w": ""})
    whole = start(fork(), 6, tmp_path / "whole", fork=how)
    start(fork(), 6, tmp_path / "cut", fork=how, until=4)
    found = go_on(fork(), 6, tmp_path / "cut")
    assert identical(found.state, whole.state)
    assert all(torch.equal(found.vectors()[name], w) for name, w in whole.vectors().items())
