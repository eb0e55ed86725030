"""What lies beyond a run's length is a line of warning; a damaged engine.json is a line that names it."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash import SWA, Broadcast, Checkpoint, LocalEngine, LocalTraining, RunError, Window, resume, run
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Chained, Constant, Cosine, Cyclic
from fedsash.network import Asynchronous, FedBuff, Network
from fedsash.runs import RunningSums
from support.by_default import full, some
from support.observing import final, go_on, observed, start
from support.worlds import SEQUENTIAL, federation


def test_what_begins_after_the_last_round_is_said_once_and_a_longer_run_reaches_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def world() -> Any:
        return federation(
            averages={"late": SWA(5), "early": Window(2), "w": Window(2, start=6)}, broadcast=Broadcast("early", 4)
        )

    checkpoint, sums = Checkpoint(2, keep=(1, 5, 6)), RunningSums(4)
    run(world(), 3, out=tmp_path / "short", checkpoint=checkpoint, trajectory=sums, progress=False)
    ends = "this run ends after 3 rounds, so"
    assert caplog.messages == [
        f"averages.late.start = 5: {ends} it stays the model",
        f"averages.w.start = 6: {ends} it stays the model",
        f"broadcast.start = 4: {ends} clients receive the model",
        f"checkpoint.keep = [5, 6]: {ends} these states are not saved",
        f"trajectory.every = 4: {ends} no sum is saved",
    ]
    caplog.clear()
    resume(world(), 6, tmp_path / "short", checkpoint=checkpoint, trajectory=sums, progress=False)
    run(world(), 6, out=tmp_path / "long", checkpoint=checkpoint, trajectory=sums, progress=False)
    assert caplog.messages == []
    ours, theirs = final(tmp_path / "short"), final(tmp_path / "long")
    assert {name: ours[name] for name in theirs if "metrics" not in name} == {
        name: content for name, content in theirs.items() if "metrics" not in name
    }


CADENCE = {"lawa": Window(3, every=10), "swa": SWA(6, cycle=5), "w": Window(2)}
UNSENT = [
    (
        {"broadcast": Broadcast("w", 9)},
        "broadcast.start = 9: this run ends after 9 rounds, so clients receive the model",
    ),
    ({"broadcast": Broadcast("w", 8)}, ""),
    ({"broadcast": Broadcast("w", 9, "before")}, ""),
    ({"broadcast": Broadcast("w", 10, "before")}, "broadcast.start = 10: this run ends after 9 rounds, so"),
    ({"broadcast": Broadcast("swa", 2)}, "broadcast: swa observes no round up to 8, so clients receive the model"),
    (
        {"averages": {"swa": SWA(5), "w": Window(2, every=3)}, "broadcast": Broadcast("w", 2)},
        "broadcast: w leaves out 4 of the rounds 3 to 8: what clients learn in them is lost",
    ),
    (
        {"local": LocalTraining(schedule=Cyclic(9, 3, 0.01))},
        "local.schedule: Cyclic starts at 9, after the 9 rounds of this run",
    ),
    ({"local": LocalTraining(schedule=Cyclic(8, 3, 0.01))}, ""),
    (
        {"local": LocalTraining(schedule=Chained((Constant(), Cyclic(9, 3, 0.01))))},
        "local.schedule: Cyclic starts at 9",
    ),
]


def test_averages_whose_cadence_meets_no_round_are_named(caplog: pytest.LogCaptureFixture) -> None:
    run(federation(averages=CADENCE), 9, progress=False)
    assert caplog.messages == [
        f"averages.{name}: observes none of the rounds 1 to 9, so it stays the model" for name in ("lawa", "swa")
    ]
    caplog.clear()
    run(federation(averages=CADENCE), 10, progress=False)
    assert caplog.messages == []


def test_a_schedule_of_each_clients_trainings_may_begin_in_few_steps(caplog: pytest.LogCaptureFixture) -> None:
    """Six uploads make a step, and a client trains many times in four steps."""
    world = federation(local=LocalTraining(schedule=Cyclic(5, 3, 0.01)), sampling=Uniform(fraction=1.0))
    run(Asynchronous(world, Network(), FedBuff(6)), 4, progress=False)
    assert caplog.messages == []
    run(Asynchronous(world, Network(), FedBuff(6, schedule_counts="steps")), 4, progress=False)
    assert caplog.messages == ["local.schedule: Cyclic starts at 5, after the 4 rounds of this run"]


@pytest.mark.parametrize("settings, line", [*UNSENT[::2], *(full(*one) for one in UNSENT[1::2])])
def test_what_no_client_receives_or_does_is_named(
    settings: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    usual: dict[str, Any] = {"averages": {"swa": SWA(5, cycle=5), "w": Window(2)}, "local": LocalTraining()}
    result = run(federation(**usual | settings), 9, progress=False)
    assert [message.startswith(line) for message in caplog.messages] == [True] * bool(line)
    plain = run(federation(**usual), 9, progress=False)
    assert torch.equal(result.state.w, plain.state.w) == (bool(line) and "is lost" not in line)


@pytest.mark.parametrize(
    "content",
    some(
        ["", "[]", "3", "{", '{"workers": 1', "[" * 5000, "1" * 5000, '[{"kind": "sequential"}]'], "", "3", "[" * 5000
    ),
)
def test_an_engine_file_that_is_damaged_is_named(content: str, tmp_path: Path) -> None:
    start(observed(engine=SEQUENTIAL), 2, tmp_path)
    (tmp_path / "engine.json").write_text(content)
    with pytest.raises(RunError, match=r"engine\.json (is damaged|is not JSON|must be a JSON object)"):
        go_on(observed(engine=SEQUENTIAL), 3, tmp_path)


def test_an_engine_file_with_values_that_no_engine_has_is_named(tmp_path: Path) -> None:
    start(observed(engine=SEQUENTIAL), 2, tmp_path)
    began = json.loads((tmp_path / "engine.json").read_text())
    (tmp_path / "engine.json").write_text(json.dumps(began | {"workers": 10**30}))
    with pytest.raises(RunError, match=r"engine\.json is damaged"):
        go_on(observed(engine=LocalEngine()), 3, tmp_path)


def test_more_workers_than_the_machine_can_use_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.engines.local_engine.PER_CORE", 1)
    monkeypatch.setattr("fedsash.engines.local_engine.core_count", lambda: 2)
    before = set(multiprocessing.active_children())
    engine = LocalEngine("sequential", workers=600, block=1, memory_format="contiguous", compile=False, threads=1)
    with federation(engine=engine) as world:
        world.prepare(1)
        assert world.described()["workers"] == 600
        assert len(set(multiprocessing.active_children()) - before) == 2


def test_rounds_at_rate_0_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """As after the end of a cosine that was made for fewer rounds."""
    world = federation(averages={}, local=LocalTraining(lr=0.1, schedule=Cosine(2)))
    run(world, 5, progress=False)
    assert [line for line in caplog.messages if "local.lr" in line] == [
        "local.lr is 0 in 3 of 5 rounds: nothing is learned in them"
    ]
