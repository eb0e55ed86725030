from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from worlds import ENGINES, SEQUENTIAL, VECTORISED, data, federation, mlp

from fedsash import EMA, SWA, Checkpoint, Client, Engine, Evaluation, Federation, Feed, Mean, Window, resume, run
from fedsash.averages import Average
from fedsash.evaluation import Metrics
from fedsash.methods import FedAvg, FedProx, Method, Scaffold
from fedsash.servers import SGD, Adagrad, Adam, Server, Yogi
from fedsash.state import load_newest, saved_rounds

EVERY = Evaluation(every=1, last=1)
AVERAGES: dict[str, Average] = {
    "window": Window(3, storage="disk"),
    "lawa": Window(2, every=2, storage="host"),
    "classifier": Window(2, part="classifier"),
    "ema": EMA(0.6),
    "zero": EMA(0.9, start="zero"),
    "swa": SWA(1, cycle=2),
}
TESTS = Path(__file__).parent


def observed(**settings: Any) -> Federation:
    """A federation with every kind of average, evaluated after every round."""
    return federation(**{"averages": AVERAGES, "evaluation": EVERY} | settings)


def start(world: Federation, rounds: int, out: Path, every: int = 50, **settings: Any) -> Any:
    return run(world, rounds, out=out, checkpoint=Checkpoint(every), progress=False, **settings)


def go_on(world: Federation, rounds: int, out: Path, every: int = 50, **settings: Any) -> Any:
    return resume(world, rounds, out, checkpoint=Checkpoint(every), progress=False, **settings)


def final(folder: Path) -> dict[str, bytes]:
    """The bytes in which a run that was stopped must not differ from one that was not."""
    last = folder / "state" / f"{saved_rounds(folder / 'state')[-1]:08d}"
    files = [*(folder / "models").iterdir(), *last.glob("*.safetensors"), folder / "metrics.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Crash(Exception):
    """What stops a run at a chosen round without any of its own doing."""


def crash_at(round: int) -> Callable[[int, list[Metrics]], None]:
    def callback(now: int, metrics: list[Metrics]) -> None:
        if now == round:
            raise Crash

    return callback


# A run and its folder.


def test_a_run_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(observed(), 3, progress=False)
    assert result.folder is None and result.state.round == 3 and not result.interrupted
    assert [row["round"] for row in result.history if row["model"] == "model"] == [1, 2, 3]
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    config = {"seed": 3, "averages": {"window": {"name": "window", "size": 3}}}
    result = start(observed(), 6, out, every=2, config=config)
    assert sorted(path.name for path in out.iterdir()) == [
        "config.toml",
        "curves.png",
        "engine.json",
        "metrics.jsonl",
        "models",
        "state",
        "summary.json",
    ]
    names = ["model", *AVERAGES]
    files = {f"{name}{end}.safetensors" for name in names for end in ("", "-best")}
    assert {path.name for path in (out / "models").iterdir()} == files
    assert saved_rounds(out / "state") == [4, 6]
    assert rows(out) == result.history
    assert result.folder == out and json.loads((out / "summary.json").read_text()) == result.summary
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")

    import tomllib

    engine = json.loads((out / "engine.json").read_text())
    assert Engine(**engine) == SEQUENTIAL
    assert tomllib.loads((out / "config.toml").read_text()) == config | {"rounds": 6, "engine": engine}


def test_there_is_no_pickle_in_the_folder(tmp_path: Path) -> None:
    from safetensors import safe_open

    start(observed(method=Scaffold(), server=Adam()), 2, tmp_path)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                assert list(file.keys())
        elif path.suffix in (".json", ".jsonl"):
            assert all(json.loads(line) for line in [path.read_text()] if path.suffix == ".json") and rows(tmp_path)
        else:
            assert path.name == "curves.png"


def test_the_summary(tmp_path: Path) -> None:
    world = observed(evaluation=Evaluation(every=1, last=3, target=0.01))
    result = start(world, 5, tmp_path)
    summary = result.summary
    assert set(summary["models"]) == {"model", *AVERAGES}
    test = [row["accuracy"] for row in result.history if row["model"] == "ema"]
    own = summary["models"]["ema"]
    assert own["accuracy"] == test[-1] and own["last_mean"] == pytest.approx(sum(test[-3:]) / 3)
    assert own["best"] == {"round": 1 + test.index(max(test)), "accuracy": max(test)}
    assert own["rounds_to_target"] == 1 and own["last_std"] >= 0
    assert summary["rounds"] == 5 and summary["seed"] == 3 and summary["device"] == "cpu"
    assert summary["seconds"] == result.state.seconds > result.state.training_seconds > 0
    trained = sum(2 * world.data.sizes[world.sampling.clients(t, world.data.sizes, 3)].sum() for t in range(5))
    assert result.state.samples == trained
    assert summary["samples_per_second"] == trained / result.state.training_seconds
    assert 10**7 < summary["peak_memory_bytes"] < 10**11
    assert summary["versions"]["torch"] == torch.__version__
    assert summary["versions"].keys() == {"python", "fedsash", "torch", "numpy"}
    assert Engine(**summary["engine"]) == SEQUENTIAL


def test_callbacks_get_every_evaluation_from_the_first_round_of_this_sitting_on(tmp_path: Path) -> None:
    seen: list[tuple[int, list[Metrics]]] = []
    world = federation(averages={"w": Window(2)}, evaluation=Evaluation(every=3, last=2))
    first = start(world, 8, tmp_path, callbacks=[lambda round, metrics: seen.append((round, metrics))])
    assert [round for round, _ in seen] == [3, 6, 7, 8]
    assert [m.row() for _, metrics in seen for m in metrics] == first.history
    assert all(m.round == round for round, metrics in seen for m in metrics)
    seen.clear()
    go_on(world, 9, tmp_path, callbacks=[lambda round, metrics: seen.append((round, metrics))])
    assert [round for round, _ in seen] == [9]


def test_the_guards_findings_are_in_the_log_and_in_the_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = federation(aggregation=Mean(limit=1e-9), evaluation=EVERY)
    result = start(world, 2, tmp_path)
    guard = [row for row in rows(tmp_path) if row["split"] == "guard"]
    assert [row["round"] for row in guard] == [1, 2]
    assert all(
        sorted(row["refused"]) == sorted(world.sampling.clients(row["round"] - 1, world.data.sizes, 3)) for row in guard
    )
    assert "round 1: left out the uploads of clients" in caplog.text and "round 1: skipped" in caplog.text
    assert "round 2" not in caplog.text, "what goes on is said once"
    assert torch.equal(result.state.w, world.start().w)


class Network(nn.Module):
    """A network with a frozen layer, a tied weight and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen, self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)
        self.frozen.requires_grad_(False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.tensor(2.0))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(self.frozen(x) * self.scale)))))


def test_the_final_models_load_into_the_plain_module(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    world = federation(model=Network(), averages={"w": Window(2)}, evaluation=EVERY)
    result = start(world, 4, tmp_path)
    plain, untrained = Network(), Network()
    for name, w in world.models(result.state).items():
        plain.load_state_dict(load_file(tmp_path / "models" / f"{name}.safetensors"), strict=True)
        assert torch.equal(world.layout.flatten(plain), w)
        assert plain.second.weight is plain.first.weight
        assert torch.equal(plain.frozen.weight, untrained.frozen.weight)
        assert not torch.equal(plain.first.weight, untrained.first.weight)
        test = world.data.test
        assert test is not None
        accuracy = float((plain(test.x).argmax(1) == test.y).double().mean())
        assert accuracy == result.summary["models"][name]["accuracy"]


def test_the_best_models_are_those_of_their_rounds(tmp_path: Path) -> None:
    result = start(observed(), 6, tmp_path / "a")
    for name in ("model", "ema"):
        start(observed(), result.summary["models"][name]["best"]["round"], tmp_path / name)
        best = (tmp_path / "a" / "models" / f"{name}-best.safetensors").read_bytes()
        assert best == (tmp_path / name / "models" / f"{name}.safetensors").read_bytes()


def test_checkpoint_settings() -> None:
    with pytest.raises(ValueError, match=r"Checkpoint.every = 0: must be at least 1"):
        Checkpoint(every=0)
    with pytest.raises(ValueError, match=r"Checkpoint.keep = \(3, 0\): must be rounds"):
        Checkpoint(keep=(3, 0))
    with pytest.raises(ValueError, match="rounds = 0: must be at least 1"):
        run(federation(), 0)
    assert [r for r in range(1, 12) if Checkpoint(4, keep=(3,)).due(r, 11)] == [3, 4, 8, 11]


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    start(federation(), 2, tmp_path)
    before = final(tmp_path)
    with pytest.raises(ValueError, match="holds a run already: resume it, or choose another folder"):
        start(federation(), 4, tmp_path)
    assert final(tmp_path) == before


def test_a_folder_without_a_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing holds no run to resume"):
        go_on(federation(), 4, tmp_path / "nothing")
    assert not list(tmp_path.iterdir())


# A run that was stopped and resumed is the run that was not.

METHODS: dict[str, Method] = {"FedAvg": FedAvg(), "FedProx": FedProx(0.1), "I": Scaffold("I"), "II": Scaffold("II")}
SERVERS: dict[str, Server] = {
    "SGD": SGD(),
    "momentum": SGD(momentum=0.9),
    "Adagrad": Adagrad(),
    "Adam": Adam(bias_correction="flower"),
    "Yogi": Yogi(),
}
FEEDS: dict[str, Feed | None] = {
    "no feed": None,
    "after": Feed("window", start=1),
    "before": Feed("window", start=1, order="before"),
}


def twice_as_far(tmp_path: Path, n: int, **settings: Any) -> None:
    """run(2n) is run(n), save, resume to 2n, to the byte."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    start(observed(**settings), 2 * n, whole)
    start(observed(**settings), n, halves)
    go_on(observed(**settings), 2 * n, halves)
    assert final(halves) == final(whole)


@pytest.fixture(scope="module")
def untested() -> dict[str, Any]:
    """Settings for runs that are evaluated at the clients only, and so draw no picture."""
    return {"data": replace(data(), test=None), "evaluation": Evaluation(every=1, clients=True)}


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("method", METHODS)
def test_half_a_run_resumed_is_the_run(
    method: str, server: str, feed: str, untested: dict[str, Any], tmp_path: Path
) -> None:
    twice_as_far(tmp_path, 2, method=METHODS[method], server=SERVERS[server], feed=FEEDS[feed], **untested)


@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("average", AVERAGES)
def test_half_a_run_resumed_is_the_run_whatever_is_fed(
    average: str, order: Any, untested: dict[str, Any], tmp_path: Path
) -> None:
    twice_as_far(tmp_path, 3, feed=Feed(average, start=2, order=order), server=Adam(), **untested)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ["vectorised", "workers"])
def test_half_a_run_resumed_is_the_run_on_every_engine(
    engine: str, method: str, untested: dict[str, Any], tmp_path: Path
) -> None:
    client = Client(lr=0.1, batch=5, epochs=2, momentum=0.5)
    settings = {"engine": ENGINES[engine], "method": METHODS[method], "client": client, "server": Adam()}
    twice_as_far(tmp_path, 3, feed=Feed("window", start=2), **untested | settings)


@pytest.mark.parametrize("round", [1, 2, 3, 4, 6, 7])
def test_a_crash_at_any_round_changes_nothing(round: int, tmp_path: Path) -> None:
    start(observed(), 7, tmp_path / "whole", every=3)
    with pytest.raises(Crash):
        start(observed(), 7, tmp_path / "crashed", every=3, callbacks=[crash_at(round)])
    assert saved_rounds(tmp_path / "crashed" / "state") == [r for r in (3, 6) if r < round]
    result = go_on(observed(), 7, tmp_path / "crashed", every=3)
    assert final(tmp_path / "crashed") == final(tmp_path / "whole")
    assert result.history == rows(tmp_path / "whole")


def test_a_finished_run_resumed_stays_as_it_is(tmp_path: Path) -> None:
    first = start(observed(), 4, tmp_path)
    before = final(tmp_path)
    second = go_on(observed(), 4, tmp_path)
    assert final(tmp_path) == before and not second.interrupted
    assert second.summary["models"] == first.summary["models"] and second.state.seconds == first.state.seconds


def test_a_damaged_state_costs_rounds_but_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    start(observed(), 8, whole, every=2)
    start(observed(), 6, damaged, every=2)
    newest = damaged / "state" / "00000006"
    for path in (newest / "window-00000005.safetensors", newest / "state.safetensors"):
        os.truncate(path, 100)
    result = go_on(observed(), 8, damaged, every=2)
    assert caplog.messages == [
        f"{newest / 'window-00000005.safetensors'} is missing or damaged; using the state before it"
    ]
    assert final(damaged) == final(whole) and result.history == rows(whole)
    for round in saved_rounds(damaged / "state"):
        again, notes = load_newest(damaged / "state", observed().start())
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


def test_a_run_of_another_experiment_is_not_resumed(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path)
    before = final(tmp_path)
    with pytest.raises(ValueError, match=r"00000002 is of another experiment: .* missing there"):
        go_on(observed(method=Scaffold(), server=Adam()), 4, tmp_path)
    assert final(tmp_path) == before


def test_stale_states_of_a_beginning_that_was_killed_are_not_used(tmp_path: Path) -> None:
    start(observed(), 4, tmp_path / "fresh", every=2)
    start(observed(seed=4), 6, tmp_path / "stale", every=2)
    (tmp_path / "stale" / "metrics.jsonl").unlink()
    start(observed(), 4, tmp_path / "stale", every=2)
    assert final(tmp_path / "stale") == final(tmp_path / "fresh")
    assert saved_rounds(tmp_path / "stale" / "state") == [2, 4]


def test_a_resumed_run_keeps_the_engine_that_was_measured_for_it(tmp_path: Path) -> None:
    start(observed(engine=VECTORISED), 6, tmp_path / "whole")
    start(observed(engine=VECTORISED), 3, tmp_path / "auto")
    open_to_all = observed(engine=Engine(threads=1))
    go_on(open_to_all, 6, tmp_path / "auto")
    assert open_to_all.engine == VECTORISED
    assert final(tmp_path / "auto") == final(tmp_path / "whole")
    other = observed(engine=Engine("sequential", workers=1))
    go_on(other, 7, tmp_path / "auto")
    assert other.engine.kind == "sequential", "what is asked for counts more"


# Forks.


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 rounds whose states after 4, 6 and 8 are there."""
    folder = tmp_path_factory.mktemp("source") / "a"
    run(observed(), 8, out=folder, checkpoint=Checkpoint(2, keep=(4,)), progress=False)
    return folder


def test_a_fork_goes_on_as_its_source(source: Path, tmp_path: Path) -> None:
    result = start(observed(), 8, tmp_path / "b", fork=(source, 4))
    assert final(tmp_path / "b").keys() == final(source).keys()
    assert final(tmp_path / "b") == final(source)
    assert result.state.forked == 4


@pytest.mark.parametrize("average", ["window", "ema", "swa"])
@pytest.mark.parametrize(("order", "start_of_feed"), [("after", 3), ("after", 4), ("before", 4)])
def test_a_fork_that_feeds_is_the_run_that_fed_from_there_on(
    order: Any, start_of_feed: int, average: str, source: Path, tmp_path: Path
) -> None:
    settings = {"feed": Feed(average, start=start_of_feed, order=order)}
    start(observed(**settings), 8, tmp_path / "whole")
    start(observed(**settings), 8, tmp_path / "fork", fork=(str(source), 4))
    assert final(tmp_path / "fork") == final(tmp_path / "whole")
    assert final(tmp_path / "fork") != final(source)
    shared = [row for row in rows(source) if row["round"] <= 4]
    assert rows(tmp_path / "fork")[: len(shared)] == shared


@pytest.mark.parametrize(("order", "start_of_feed"), [("after", 3), ("before", 4)])
def test_a_fork_whose_feed_should_have_begun_before_feeds_from_the_fork_on(
    order: Any, start_of_feed: int, source: Path, tmp_path: Path
) -> None:
    for name, round in {"at the fork": start_of_feed, "from the start": 0}.items():
        start(observed(feed=Feed("window", start=round, order=order)), 6, tmp_path / name, fork=(source, 4))
    assert final(tmp_path / "at the fork") == final(tmp_path / "from the start")


def test_a_fork_needs_no_folder(source: Path, tmp_path: Path) -> None:
    result = run(observed(), 8, fork=(source, 4), progress=False)
    assert result.history == rows(source) and result.state.round == 8


def test_a_fork_may_observe_other_averages(source: Path, tmp_path: Path) -> None:
    world = observed(averages={"window": Window(3), "new": EMA(0.5)})
    start(world, 6, tmp_path, fork=(source, 4))
    names = {"model", "window", "new"}
    assert {path.stem.removesuffix("-best") for path in (tmp_path / "models").iterdir()} == names
    assert set(json.loads((tmp_path / "summary.json").read_text())["models"]) == names


def test_a_fork_of_a_round_that_is_not_saved_says_which_are(source: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"{source} has no state of round 5; saved are: 4, 6, 8 \(see checkpoint.keep\)"
    ):
        start(observed(), 8, tmp_path / "b", fork=(source, 5))
    with pytest.raises(ValueError, match="nowhere has no state of round 5; saved are: none"):
        start(observed(), 8, tmp_path / "b", fork=(tmp_path / "nowhere", 5))
    with pytest.raises(ValueError, match="rounds = 4: must be more than the 4 of the fork's state"):
        start(observed(), 4, tmp_path / "b", fork=(source, 4))
    assert not (tmp_path / "b" / "metrics.jsonl").exists()


def test_a_fork_of_another_experiment_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of another experiment: server/m is missing there"):
        start(observed(server=Adam()), 8, tmp_path / "b", fork=(source, 4))
    assert not (tmp_path / "b" / "metrics.jsonl").exists()


def test_a_fork_of_a_start_is_kept_as_well(tmp_path: Path) -> None:
    settings = {"model": mlp(seed=1)}
    start(observed(**settings), 4, tmp_path / "whole")
    assert start(interrupting(observed, step=1, **settings), 4, tmp_path / "source").state.round == 0
    with pytest.raises(Crash):
        start(observed(), 4, tmp_path / "b", fork=(tmp_path / "source", 0), callbacks=[crash_at(2)])
    assert go_on(observed(), 4, tmp_path / "b").state.forked == 0
    assert final(tmp_path / "b") == final(tmp_path / "whole")


@pytest.mark.parametrize("every", [1, 50])
def test_a_fork_that_crashed_resumes_from_the_fork(every: int, source: Path, tmp_path: Path) -> None:
    settings = {"feed": Feed("window", start=3)}
    start(observed(**settings), 8, tmp_path / "whole", fork=(source, 4))
    with pytest.raises(Crash):
        start(observed(**settings), 8, tmp_path / "b", every, fork=(source, 4), callbacks=[crash_at(7)])
    assert go_on(observed(**settings), 8, tmp_path / "b").state.forked == 4
    assert final(tmp_path / "b") == final(tmp_path / "whole")


# Ctrl-C.


def interrupting(world_of: Callable[..., Federation], step: int, **settings: Any) -> Federation:
    """A federation in whose given local step somebody presses Ctrl-C."""
    taken = 0

    def loss(output: Tensor, y: Tensor) -> Tensor:
        nonlocal taken
        taken += torch.is_grad_enabled()
        if taken == step:
            taken += 1
            os.kill(os.getpid(), signal.SIGINT)
        return F.cross_entropy(output, y, reduction="none")

    return world_of(loss=loss, **settings)


def test_ctrl_c_ends_the_round_saves_and_can_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(observed(), 6, tmp_path / "whole")
    before = signal.getsignal(signal.SIGINT)
    world = interrupting(observed, step=60)
    result = run(world, 6, out=tmp_path / "stopped")
    assert signal.getsignal(signal.SIGINT) is before
    assert result.interrupted and 1 < result.state.round < 6
    assert saved_rounds(tmp_path / "stopped" / "state") == [result.state.round]
    assert "stopping after this round; press Ctrl-C again to stop at once" in capsys.readouterr().out
    assert json.loads((tmp_path / "stopped" / "summary.json").read_text())["rounds"] == result.state.round
    assert not go_on(observed(), 6, tmp_path / "stopped").interrupted
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_ctrl_c_in_the_last_round_interrupts_nothing(tmp_path: Path) -> None:
    def press(round: int, metrics: list[Metrics]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    result = start(observed(), 1, tmp_path, callbacks=[press])
    assert not result.interrupted and result.state.round == 1


def test_ctrl_c_before_the_first_round_saves_the_start(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path / "whole")
    result = start(interrupting(observed, step=1), 2, tmp_path / "stopped")  # a step that the engine takes to try it
    assert result.interrupted and saved_rounds(tmp_path / "stopped" / "state") == [0]
    go_on(observed(), 2, tmp_path / "stopped")
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_ctrl_c_twice_stops_at_once_and_can_be_resumed(tmp_path: Path) -> None:
    def press_twice(round: int, metrics: list[Metrics]) -> None:
        if round == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    start(observed(), 6, tmp_path / "whole", every=3)
    with pytest.raises(KeyboardInterrupt):
        start(observed(), 6, tmp_path / "stopped", every=3, callbacks=[press_twice])
    assert saved_rounds(tmp_path / "stopped" / "state") == [3]
    go_on(observed(), 6, tmp_path / "stopped", every=3)
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_a_run_in_another_thread_leaves_ctrl_c_alone() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(federation(), 2, progress=False)))
    thread.start()
    thread.join()
    assert results[0].state.round == 2


# Runs that are killed.

SCRIPT = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fedsash
from test_runs import killed_world

def train(out, engine, rounds, every, source):
    settings = {"checkpoint": fedsash.Checkpoint(every), "progress": False}
    settings["callbacks"] = [lambda round, metrics: print("round", round, flush=True)]
    world, out = killed_world(engine), Path(out)
    if (out / "metrics.jsonl").exists():
        result = fedsash.resume(world, rounds, out, **settings)
    else:
        result = fedsash.run(world, rounds, out=out, fork=(source, 4) if source else None, **settings)
    print("interrupted" if result.interrupted else "finished", flush=True)

for order in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        train(**json.loads(order))
        os._exit(0)
    print("process", pid, flush=True)
    status = os.waitpid(pid, 0)[1]
    print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""

COMPILED = replace(VECTORISED, compile=True)


def killed_world(engine: str) -> Federation:
    """The script's federation: all kinds of state are in it."""
    engines = ENGINES | {"compiled": COMPILED}
    return observed(engine=engines[engine], method=Scaffold(), server=Adam(), feed=Feed("window", start=3))


class Script:
    """The script, which starts a process of its own, and a process group, for each run: importing takes long."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(TESTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout

    def begin(self, out: Path, engine: str, rounds: int, every: int = 3, source: Path | None = None) -> int:
        """Start or resume a run; the id of its process."""
        where = None if source is None else str(source)
        order = {"out": str(out), "engine": engine, "rounds": rounds, "every": every, "source": where}
        self.orders.write(json.dumps(order) + "\n")
        self.orders.flush()
        return int(self.wait_for("process"))

    def wait_for(self, *words: str) -> str:
        """The last word of the next line that begins with one of these words."""
        for line in self.answers:
            if line.startswith(words):
                return line.split()[-1]
            assert not line.startswith("ended"), f"the run ended with {line.split()[-1]} before there was {words}"
        raise AssertionError(f"the script ended before there was {words}")

    def close(self) -> None:
        self.orders.close()
        self.answers.close()
        try:
            assert self.process.wait(timeout=10) == 0
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    started = Script()
    yield started
    started.close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Whether a process has ended, be it as a zombie for which nobody has waited."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def assert_gone_within(seconds: float, pids: list[int]) -> None:
    deadline = time.monotonic() + seconds
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if not gone(pid)]}"
        time.sleep(0.05)


def survives_kills(script: Script, engine: str, tmp_path: Path, kills: int) -> None:
    """Kill a run again and again at random moments; in the end it is the run that was not killed."""
    rounds, whole, killed = 15 * kills, tmp_path / "whole", tmp_path / "killed"
    script.begin(whole, engine, rounds)
    assert int(script.wait_for("ended")) == 0
    for i in range(kills):
        pid = script.begin(killed, engine, rounds)
        if i % 2:  # in the midst of its rounds; otherwise at any moment from its beginning on
            script.wait_for("round", "finished")
        time.sleep(random.uniform(0, 0.3))
        workers: list[int] = []
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have come to its end before
            workers = children(pid)
            os.kill(pid, signal.SIGKILL)
        code = int(script.wait_for("ended"))
        assert code == -signal.SIGKILL or (code == 0 and i > 0)
        assert_gone_within(10, workers)
    script.begin(killed, engine, rounds)
    assert int(script.wait_for("ended")) == 0
    assert final(killed) == final(whole)
    leftovers = [path for path in killed.rglob("*") if path.name.startswith(".") or "tmp" in path.name]
    assert not leftovers and saved_rounds(killed / "state") == saved_rounds(whole / "state")


@pytest.mark.timeout(100)
@pytest.mark.parametrize("engine", ENGINES)
def test_kill_minus_nine_at_any_moment_changes_nothing(engine: str, script: Script, tmp_path: Path) -> None:
    survives_kills(script, engine, tmp_path, kills=4)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, "compiled"])
def test_many_kills_at_any_moment_change_nothing(engine: str, script: Script, tmp_path: Path) -> None:
    if engine == "compiled" and shutil.which("g++") is None:
        pytest.skip("compiling needs a C++ compiler")
    survives_kills(script, engine, tmp_path, kills=15)


@pytest.mark.timeout(100)
def test_no_worker_outlives_a_killed_run(script: Script, tmp_path: Path) -> None:
    pid = script.begin(tmp_path, "workers", 1000)
    script.wait_for("round")
    workers = children(pid)
    assert len(workers) == 2 and not any(map(gone, workers))
    os.kill(pid, signal.SIGKILL)
    assert_gone_within(10, workers)
    script.wait_for("ended")


@pytest.mark.timeout(100)
def test_a_fork_killed_before_its_first_own_save_resumes_from_the_fork(script: Script, tmp_path: Path) -> None:
    source, whole, killed = tmp_path / "source", tmp_path / "whole", tmp_path / "killed"
    start(killed_world("sequential"), 6, source, every=4)
    start(killed_world("sequential"), 40, whole, fork=(source, 4))
    pid = script.begin(killed, "sequential", 40, every=1000, source=source)
    assert script.wait_for("round") == "5"
    os.kill(pid, signal.SIGKILL)
    assert int(script.wait_for("ended")) == -signal.SIGKILL
    assert saved_rounds(killed / "state") == [4]
    go_on(killed_world("sequential"), 40, killed, every=1000)
    assert final(killed) == final(whole)


@pytest.mark.timeout(100)
def test_ctrl_c_to_a_run_and_its_workers_ends_after_the_round(script: Script, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    start(killed_world("sequential"), 40, whole)
    pid = script.begin(stopped, "workers", 40, every=1000)
    script.wait_for("round")
    workers = children(pid)
    os.killpg(pid, signal.SIGINT)  # as a terminal does, to the whole group
    script.wait_for("interrupted")
    assert int(script.wait_for("ended")) == 0
    assert len(workers) == 2 and len(saved_rounds(stopped / "state")) == 1
    assert_gone_within(10, workers)
    go_on(killed_world("workers"), 40, stopped)
    assert final(stopped) == final(whole)


def test_nothing_is_logged_by_a_run_in_which_nothing_goes_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(observed(), 2, progress=False)
    assert not caplog.messages
