"""A run that was stopped and resumed is the run that was not."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fedsash import (
    SGD,
    Broadcast,
    Checkpoint,
    Fork,
    LocalEngine,
    LocalTraining,
    resume,
    run,
)
from fedsash.lab.config import load_run, parse
from fedsash.methods import FedAvg, FedProx, Method, Scaffold
from fedsash.methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, Server, ServerSGD
from fedsash.runs.checkpoints import load_newest
from fedsash.vector import saved
from fedsash.vector.saved import saved_rounds
from support.by_default import some
from support.observing import AVERAGES, final, go_on, observed, rows, start
from support.worlds import ENGINES, VECTORISED

# A run that was stopped and resumed is the run that was not.

METHODS: dict[str, Method] = {"FedAvg": FedAvg(), "FedProx": FedProx(0.1), "I": Scaffold("I"), "II": Scaffold("II")}
SERVERS: dict[str, Server] = {
    "ServerSGD": ServerSGD(),
    "momentum": ServerSGD(momentum=0.9),
    "FedAdagrad": FedAdagrad(),
    "FedAdam": FedAdam(bias_correction="flower"),
    "FedYogi": FedYogi(),
}
BROADCASTS: dict[str, Broadcast | None] = {
    "no broadcast": None,
    "after": Broadcast("window", start=2),
    "before": Broadcast("window", start=2, order="before"),
}


def twice_as_far(tmp_path: Path, n: int, **settings: Any) -> None:
    """run(2n) is run(n), save, resume to 2n, to the byte."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    start(observed(**settings), 2 * n, whole)
    start(observed(**settings), n, halves)
    go_on(observed(**settings), 2 * n, halves)
    assert final(halves) == final(whole)


def combined() -> Iterator[Any]:
    """All combinations: those by default have each value, the full ones each pair of two values."""
    for (i, method), (j, server), (k, broadcast) in product(*map(enumerate, (METHODS, SERVERS, BROADCASTS))):
        if (i + j) % len(BROADCASTS) != k:
            mark = pytest.mark.slow
        elif i != j % len(METHODS):
            mark = pytest.mark.full
        else:
            mark = ()
        yield pytest.param(method, server, broadcast, marks=mark)


@pytest.mark.parametrize("method, server, broadcast", some(combined(), "FedProx", "II"))
def test_half_a_run_resumed_is_the_run(method: str, server: str, broadcast: str, tmp_path: Path) -> None:
    twice_as_far(tmp_path, 2, method=METHODS[method], server=SERVERS[server], broadcast=BROADCASTS[broadcast])


@pytest.mark.parametrize("order", ["after", pytest.param("before", marks=pytest.mark.slow)])
@pytest.mark.parametrize("average", some(AVERAGES, "lawa"))
def test_half_a_run_resumed_is_the_run_whatever_is_broadcast(average: str, order: Any, tmp_path: Path) -> None:
    twice_as_far(tmp_path, 3, broadcast=Broadcast(average, start=3, order=order), server=FedAdam())


@pytest.mark.parametrize(
    "method", [name if name == "I" else pytest.param(name, marks=pytest.mark.full) for name in METHODS]
)
@pytest.mark.parametrize("engine", ["vectorised", pytest.param("workers", marks=pytest.mark.slow)])
def test_half_a_run_resumed_is_the_run_on_every_engine(engine: str, method: str, tmp_path: Path) -> None:
    local = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5))
    settings = {"engine": ENGINES[engine], "method": METHODS[method], "local": local, "server": FedAdam()}
    twice_as_far(tmp_path, 3, broadcast=Broadcast("window", start=3), **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing has stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(observed(), 7, folder, every=3)
    return folder


def test_a_finished_run_resumed_stays_as_it_is(tmp_path: Path) -> None:
    first = start(observed(), 4, tmp_path)
    before = final(tmp_path)
    second = go_on(observed(), 4, tmp_path)
    assert final(tmp_path) == before and not second.interrupted
    assert second.summary["models"] == first.summary["models"] and second.tally.seconds == first.tally.seconds


def test_a_damaged_state_costs_rounds_but_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    start(observed(), 8, whole, every=2)
    start(observed(), 6, damaged, every=2)
    newest = damaged / "state" / "00000006"
    for path in (newest / "past-all-00000005.safetensors", newest / "state.safetensors"):
        os.truncate(path, 100)
    result = go_on(observed(), 8, damaged, every=2)
    assert caplog.messages == [
        f"{newest / 'past-all-00000005.safetensors'} is missing or damaged; using the state before it"
    ]
    assert final(damaged) == final(whole) and result.history.rows() == rows(whole)
    for round in saved_rounds(damaged / "state"):
        again, _, notes = load_newest(damaged / "state", observed().start())
        assert again.round == 8 and not notes, f"the damage lives on in state {round}"


def test_where_all_states_are_damaged_the_run_is_left_as_it_is(tmp_path: Path) -> None:
    start(observed(), 4, tmp_path, every=2)
    for path in tmp_path.glob("state/*/state.json"):
        path.unlink()
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(
        ValueError, match=r"there is no usable state: .*00000004/state.json is missing or damaged; .*00000002"
    ):
        go_on(observed(), 8, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert saved_rounds(tmp_path / "state") == [2, 4]


def test_a_state_of_another_version_is_resumed_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start(observed(), 4, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(saved, "own_version", lambda: "0.0.1")
        start(observed(), 2, tmp_path / "halves")
    go_on(observed(), 4, tmp_path / "halves")
    assert [line for line in caplog.messages if "00000002 was saved by fedsash 0.0.1 and torch" in line]
    assert final(tmp_path / "halves") == final(tmp_path / "whole")


def test_a_run_of_another_experiment_is_not_resumed(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path)
    before = final(tmp_path)
    with pytest.raises(ValueError, match=r"another experiment: method is FedAvg\(\) there and Scaffold\(\) here"):
        go_on(observed(method=Scaffold(), server=FedAdam()), 4, tmp_path)
    assert final(tmp_path) == before


def test_stale_states_of_a_fork_that_was_killed_as_it_began_are_not_used(tmp_path: Path) -> None:
    start(observed(), 4, tmp_path / "fresh", every=2)
    start(observed(seed=4), 6, tmp_path / "other", every=2)
    start(observed(seed=4), 6, tmp_path / "stale", every=2, fork=Fork(tmp_path / "other", 6))
    (tmp_path / "killed").mkdir()
    (tmp_path / "stale" / "state").rename(tmp_path / "killed" / "state")
    start(observed(), 4, tmp_path / "killed", every=2)
    assert final(tmp_path / "killed") == final(tmp_path / "fresh")
    assert saved_rounds(tmp_path / "killed" / "state") == [2, 4]


def test_a_resumed_run_keeps_the_engine_that_was_measured_for_it(tmp_path: Path) -> None:
    start(observed(engine=VECTORISED), 6, tmp_path / "whole")
    start(observed(engine=VECTORISED), 3, tmp_path / "auto")
    resumed = go_on(observed(engine=LocalEngine(threads=1)), 6, tmp_path / "auto")
    assert LocalEngine(**resumed.summary["engine"]) == VECTORISED
    assert final(tmp_path / "auto") == final(tmp_path / "whole")
    other = go_on(observed(engine=LocalEngine("sequential", workers=1)), 7, tmp_path / "auto")
    assert other.summary["engine"]["kind"] == "sequential", "what is asked for counts more"


def test_a_state_that_a_kill_has_spared_is_removed_when_the_run_is_resumed(tmp_path: Path) -> None:
    run(observed(), 6, out=tmp_path, checkpoint=Checkpoint(2, keep=(2,)), progress=False)
    assert saved_rounds(tmp_path / "state") == [2, 4, 6]
    go_on(observed(), 6, tmp_path, every=2)
    assert saved_rounds(tmp_path / "state") == [4, 6]


def test_a_run_of_an_experiment_file_that_is_resumed_in_python_keeps_its_experiment(tmp_path: Path) -> None:
    table = {"rounds": 3, "sampling": {"count": 2}, "averages": {"w": {"name": "window", "size": 2}}}
    experiment = parse(table | {"local": {"lr": 0.1}})
    with experiment.federation() as world:
        run(world, 3, out=tmp_path, until=2, config=experiment.table(), progress=False)
    before = tomllib.loads((tmp_path / "config.toml").read_text())
    with load_run(tmp_path).federation() as world:
        resume(world, 5, tmp_path, checkpoint=Checkpoint(every=2), progress=False)
    after = tomllib.loads((tmp_path / "config.toml").read_text())
    assert before["local"]["lr"] == 0.1
    assert after == before | {"rounds": 5, "checkpoint": before["checkpoint"] | {"every": 2}}
