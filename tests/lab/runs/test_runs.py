from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash import (
    Broadcast,
    Checkpoint,
    Evaluation,
    LocalEngine,
    LocalTraining,
    WeightedMean,
    Window,
    run,
)
from fedsash.evaluation import Metrics
from fedsash.lab.checkpoints import load_newest, saved_rounds
from fedsash.methods import FedAvg, FedProx, Method, Scaffold
from fedsash.servers import FedAdagrad, FedAdam, FedYogi, Server, ServerSGD
from support.observing import AVERAGES, EVERY, Crash, crash_at, final, go_on, observed, rows, start
from support.worlds import ENGINES, SEQUENTIAL, VECTORISED, data, federation

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
        "partition.json",
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
    assert LocalEngine(**engine) == SEQUENTIAL
    assert tomllib.loads((out / "config.toml").read_text()) == config | {"rounds": 6, "engine": engine}


def test_there_is_no_pickle_in_the_folder(tmp_path: Path) -> None:
    from safetensors import safe_open

    start(observed(method=Scaffold(), server=FedAdam()), 2, tmp_path)
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
    assert LocalEngine(**summary["engine"]) == SEQUENTIAL


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
    world = federation(aggregation=WeightedMean(limit=1e-9), evaluation=EVERY)
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
    "ServerSGD": ServerSGD(),
    "momentum": ServerSGD(momentum=0.9),
    "FedAdagrad": FedAdagrad(),
    "FedAdam": FedAdam(bias_correction="flower"),
    "FedYogi": FedYogi(),
}
BROADCASTS: dict[str, Broadcast | None] = {
    "no broadcast": None,
    "after": Broadcast("window", start=1),
    "before": Broadcast("window", start=1, order="before"),
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


@pytest.mark.parametrize("broadcast", BROADCASTS)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("method", METHODS)
def test_half_a_run_resumed_is_the_run(
    method: str, server: str, broadcast: str, untested: dict[str, Any], tmp_path: Path
) -> None:
    twice_as_far(
        tmp_path, 2, method=METHODS[method], server=SERVERS[server], broadcast=BROADCASTS[broadcast], **untested
    )


@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("average", AVERAGES)
def test_half_a_run_resumed_is_the_run_whatever_is_fed(
    average: str, order: Any, untested: dict[str, Any], tmp_path: Path
) -> None:
    twice_as_far(tmp_path, 3, broadcast=Broadcast(average, start=2, order=order), server=FedAdam(), **untested)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ["vectorised", "workers"])
def test_half_a_run_resumed_is_the_run_on_every_engine(
    engine: str, method: str, untested: dict[str, Any], tmp_path: Path
) -> None:
    client = LocalTraining(lr=0.1, batch=5, epochs=2, momentum=0.5)
    settings = {"engine": ENGINES[engine], "method": METHODS[method], "local": client, "server": FedAdam()}
    twice_as_far(tmp_path, 3, broadcast=Broadcast("window", start=2), **untested | settings)


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
    for path in (newest / "past-all-00000005.safetensors", newest / "state.safetensors"):
        os.truncate(path, 100)
    result = go_on(observed(), 8, damaged, every=2)
    assert caplog.messages == [
        f"{newest / 'past-all-00000005.safetensors'} is missing or damaged; using the state before it"
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
        go_on(observed(method=Scaffold(), server=FedAdam()), 4, tmp_path)
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
    resumed = go_on(observed(engine=LocalEngine(threads=1)), 6, tmp_path / "auto")
    assert LocalEngine(**resumed.summary["engine"]) == VECTORISED
    assert final(tmp_path / "auto") == final(tmp_path / "whole")
    other = go_on(observed(engine=LocalEngine("sequential", workers=1)), 7, tmp_path / "auto")
    assert other.summary["engine"]["kind"] == "sequential", "what is asked for counts more"
