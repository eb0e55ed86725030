"""What format 7 of a saved state holds beside the tensors, and what `resume` makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.client.messages import Answers, Executor, Request
from fedsash.engines import ClientWork, Engine, LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.methods import FedAvg, FedProx, LocalRun, Scaffold, Step, Upload
from fedsash.methods.sampling import Function, Uniform
from fedsash.runs import Fork
from fedsash.runs.checkpoints import fingerprint, load, load_run, save, sizes
from fedsash.runs.tally import Tally
from fedsash.server.broadcast import Broadcast
from fedsash.settings.errors import RunError
from fedsash.settings.fingerprint import differences
from fedsash.system.checksum import json_checksum
from fedsash.vector.arrays import Vectors
from fedsash.vector.saved import MANIFEST, place, saved_rounds
from support.by_default import some
from support.executors import OneByOne
from support.json_files import content_of
from support.observing import final, go_on, observed, start
from support.worlds import after, data, federation, mlp


def test_versions_sizes_run_records_and_fingerprint_come_back(tmp_path: Path) -> None:
    world = federation(method=Scaffold())
    state = after(world, 3)
    state.clients.lineage = (0, "a"), (2, "b")
    told = Tally(forked=2, records=(7, 123), evaluation_due=True)
    path = save(state, tmp_path, tally=told, fingerprint=world.fingerprint, sizes=world.sizes)
    loaded, tally = load_run(path, world.start())
    assert loaded.last.tolist() == state.last.tolist() and max(state.last) == 3
    assert loaded.clients.lineage == ((0, "a"), (2, "b"))
    assert (tally.forked, tally.records, tally.evaluation_due) == (2, (7, 123), True)
    assert fingerprint(path) == world.fingerprint and sizes(path).tolist() == world.sizes.tolist()


# What an executor must remember.


@dataclass(frozen=True)
class Counting(Engine):
    """An engine whose executor counts its requests, for good."""

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Counter(work), []


class Counter(OneByOne):
    def __init__(self, work: ClientWork) -> None:
        super().__init__(work)
        self.rounds = torch.zeros(0, dtype=torch.int64)

    def work(self, request: Request) -> Answers:
        if request.job == "train":
            self.rounds = torch.cat([self.rounds, torch.tensor([request.round])])
        return super().work(request)

    def saved(self) -> Vectors:
        return {"rounds": self.rounds}

    def load(self, saved: Vectors) -> None:
        self.rounds = saved.get("rounds", torch.zeros(0, dtype=torch.int64))


def test_an_executor_goes_on_from_what_it_had_to_remember(tmp_path: Path) -> None:
    start(observed(engine=Counting()), 3, tmp_path)
    result = go_on(observed(engine=Counting()), 6, tmp_path)
    saved = load(place(tmp_path / "state", 6), observed().start())
    assert saved.executor["rounds"].tolist() == [0, 1, 2, 3, 4, 5]
    assert result.state.round == 6


# Another experiment is refused, and the line says what differs.

OTHERS: dict[str, Any] = {
    "seed": {"seed": 4},
    "method": {"method": FedProx(0.1)},
    "local": {"local": LocalTraining(lr=0.2, batch=5, epochs=2)},
    "sampling": {"sampling": Uniform(3)},
    "model": {"model": mlp(seed=1)},
    "partition": {"data": replace(data(), clients=[np.array([0, 1]), *data().clients[1:]])},
    "data": {"data": data(seed=1)},
    "broadcast": {"broadcast": Broadcast("window", start=2)},
}


@pytest.mark.parametrize("name", some(OTHERS, "method", "partition", "data"))
def test_resuming_another_experiment_is_refused_and_changing_it_by_a_fork_is_not(name: str, tmp_path: Path) -> None:
    start(observed(), 2, tmp_path / "run")
    before = final(tmp_path / "run")
    with pytest.raises(ValueError, match=rf"holds a run of another experiment: .*{name} is .* there and .* here"):
        go_on(observed(**OTHERS[name]), 4, tmp_path / "run")
    assert final(tmp_path / "run") == before
    forked = start(observed(**OTHERS[name]), 4, tmp_path / "fork", fork=Fork(tmp_path / "run", 2))
    assert forked.state.round == 4


def test_the_fingerprint_tells_settings_apart_and_nothing_else() -> None:
    world = federation()
    assert world.fingerprint == federation().fingerprint
    assert not differences(federation(averages={"w": Window(3)}).fingerprint, world.fingerprint)
    own = federation(sampling=Function(everybody)).fingerprint
    assert "everybody" in own["sampling"] and differences(own, world.fingerprint)


def everybody(round: int, sizes: np.ndarray, seed: int) -> np.ndarray:
    return np.arange(len(sizes))


# Records that were lost or changed.


@pytest.mark.parametrize("damage", some(["emptied", "shortened", "changed", "gone"], "shortened", "changed"))
def test_lost_or_changed_records_are_refused_and_nothing_is_written(damage: str, tmp_path: Path) -> None:
    start(observed(), 4, tmp_path)
    file = tmp_path / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    summary = (tmp_path / "summary.json").read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        row = json.loads(lines[0]) | {"accuracy": 0.123}
        left = {"emptied": [], "shortened": lines[1:], "changed": [json.dumps(row).encode() + b"\n", *lines[1:]]}
        file.write_bytes(b"".join(left[damage]))
    line = r"metrics.jsonl is missing: " if damage == "gone" else r"metrics.jsonl is damaged: up to round 4 it has"
    with pytest.raises(ValueError, match=f"{line}.*put the right one back, or fork from a saved state"):
        go_on(observed(), 6, tmp_path)
    assert (tmp_path / "summary.json").read_bytes() == summary and saved_rounds(tmp_path / "state")[-1] == 4


def test_a_manifest_is_readable(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path)
    manifest = json.loads((place(tmp_path / "state", 2) / MANIFEST).read_text())
    assert manifest["format"] == 7 and [len(run) for _, run in manifest["lineage"]] == [32]
    assert manifest["records"][0] == len((tmp_path / "metrics.jsonl").read_text().splitlines())
    assert manifest["fingerprint"]["seed"] == "3"


def test_a_run_of_an_older_format_is_neither_resumed_nor_forked_and_the_line_says_what_to_do(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path / "old")
    go_on(observed(), 3, tmp_path / "old")
    for round in (2, 3):
        file = place(tmp_path / "old" / "state", round) / MANIFEST
        manifest = json.loads(file.read_text()) | {"format": 6, "versions": "fedsash 0.2.0 and torch 2.13.0"}
        del manifest["checksum"]
        file.write_text(json.dumps(manifest | {"checksum": json_checksum(manifest)}))
    right = r"format 6, .*reads format 7: go on with what saved it \(fedsash 0\.2\.0 .*\), or begin anew"
    with pytest.raises(RunError, match=right) as error:
        go_on(observed(), 4, tmp_path / "old")
    assert str(error.value).count("reads format 7") == 2 and str(error.value).count("go on with") == 1
    with pytest.raises(RunError, match=right):
        start(observed(), 4, tmp_path / "new", fork=Fork(tmp_path / "old", 2))
    assert not (tmp_path / "new").exists()


# Forks: other clients, other sizes; and what a run is called.


def test_a_fork_to_other_clients_trains_with_their_weights(tmp_path: Path) -> None:
    """Its rounds are those that the federation makes by hand from the source's model."""
    shuffled = replace(data(), clients=[*data().clients[3:], *data().clients[:3]])
    for name, settings in {"sizes": {"data": shuffled}, "held": {"evaluation": Evaluation(held_out=0.4)}}.items():
        source = start(observed(), 2, tmp_path / name / "source")
        forked = start(observed(**settings), 3, tmp_path / name / "fork", fork=Fork(tmp_path / name / "source", 2))
        with observed(**settings) as world:
            by_hand, _ = world.round(replace(world.start(), round=2, w=source.state.w))
        assert torch.equal(forked.state.w, by_hand.w)
        saved = place(tmp_path / name / "fork" / "state", 3)
        assert forked.state.clients.count == 6 and sizes(saved).tolist() == observed(**settings).sizes.tolist()


def test_a_run_without_client_state_forks_to_another_number_of_clients(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path / "source")
    fewer = observed(data=data().shard(range(5)))
    assert start(fewer, 4, tmp_path / "fork", fork=Fork(tmp_path / "source", 2)).state.round == 4


def test_a_run_keeps_its_id_and_a_fork_has_its_sources_before_its_own(tmp_path: Path) -> None:
    first = start(observed(), 2, tmp_path / "run").state.clients.lineage
    assert go_on(observed(), 4, tmp_path / "run").state.clients.lineage == first and len(first) == 1
    forked = start(observed(), 4, tmp_path / "fork", fork=Fork(tmp_path / "run", 2)).state.clients.lineage
    assert forked[0] == first[0] and forked[1][0] == 2 and forked[1][1] != first[0][1]
    again = start(observed(), 6, tmp_path / "again", fork=Fork(tmp_path / "fork", 4)).state.clients.lineage
    assert again[:2] == forked and [since for since, _ in again] == [0, 2, 4]


def test_the_result_says_what_was_chosen_and_what_has_to_be_remembered(tmp_path: Path) -> None:
    result = start(observed(engine=LocalEngine(workers=1)), 2, tmp_path / "auto")
    assert "auto" not in {value for name, value in result.summary["engine"].items() if name != "start"}
    assert result.summary["engine"] == content_of(tmp_path / "auto" / "engine.json")
    remembering = start(observed(engine=Counting()), 2, tmp_path / "counting")
    assert remembering.state.executor["rounds"].tolist() == [0, 1]
    with observed(engine=Counting(), evaluation=Evaluation(clients=True)) as world:
        world.evaluate(remembering.state)
        state, _ = world.round(remembering.state)
        assert world.saved(state).executor["rounds"].tolist() == [0, 1, 2], "a loop of one's own goes on, too"


def test_a_base_method_with_a_probe_is_resumed(tmp_path: Path) -> None:
    whole = start(observed(method=Asking()), 4, tmp_path / "whole").state
    start(observed(method=Asking()), 2, tmp_path / "stopped")
    resumed = go_on(observed(method=Asking()), 4, tmp_path / "stopped").state
    assert torch.equal(resumed.w, whole.w) and not resumed.server_state


@dataclass(frozen=True)
class Asking(FedAvg):
    """FedAvg that asks for the clients' gradients, and steps half along their mean."""

    def probe(self, local: LocalRun) -> Upload:
        return {"g": local.full_grad(local.w)}

    def direction(self, step: Step) -> torch.Tensor:
        return 0.5 * (step.grad(step.w) + step.server_state["g"])


def test_a_request_says_how_far_the_run_can_be_set_back(tmp_path: Path) -> None:
    result = start(observed(), 6, tmp_path, every=2)
    assert saved_rounds(tmp_path / "state") == [4, 6]
    assert result.state.clients.oldest == 4
    assert go_on(observed(), 7, tmp_path).state.clients.oldest == 6
