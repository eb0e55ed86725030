"""What a segment of a sweep says when it has ended: the metric that decides, as people read it."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from fedsash.evaluation import Evaluation
from fedsash.lab.cli import main
from fedsash.lab.sweeps.process import Message, Process, StopRequest, _results
from fedsash.runs.summaries import summarise
from fedsash.system.subprocesses import Child
from fedsash.tasks import Criterion
from support.histories import ACCURACY, RMSE, history, history_of
from support.sweeps import BASE, write

SWEEP = """
base.rounds = 2
base.task.name = "regression"
base.partition = { name = "iid", clients = 4 }
base.model = { name = "mlp", hidden = [4] }
base.local = { lr = 0.01, epochs = 1 }
base.sampling.count = 2
base.evaluation = { every = 1, last = 1 }
base.engine = { kind = "sequential", workers = 1, threads = 1, compile = false }
axes.seed = [0, 1]
"""


@pytest.mark.parametrize(
    "criterion, text",
    [(ACCURACY, "model 50.0 %, w 62.5 %"), (RMSE, "model 0.5, w 0.625")],
)
def test_a_segment_says_the_mean_of_each_model(criterion: Criterion, text: str) -> None:
    rows = history({"model": [0.5], "w": [0.625], "new": [None]}, metric=criterion.name)
    assert _results(summarise(history_of(rows), Evaluation(), criterion)) == text


def test_a_process_whose_output_is_missing_has_died_all_the_same(tmp_path: Path) -> None:
    """As where the file of another machine can not be seen."""
    log = tmp_path / "log.txt"
    child, heard = Child("no_module_of_this_name", str(log), str(tmp_path), {}), SimpleQueue[Message | StopRequest]()
    log.unlink()
    Process(child, heard)
    message = heard.get()
    assert isinstance(message, Message) and message.crash and str(log) in message.reason


def test_a_segment_without_evaluations_and_a_failed_one_say_nothing_of_models() -> None:
    nothing: dict[str, Any] = {}
    assert _results(nothing) == _results(summarise(history_of([]), Evaluation(), RMSE)) == ""


LATE = {"off": {}, "late": {"broadcast": {"average": "ima", "start": 151}}}


def planned(axes: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    """What the plan of a sweep says on standard error."""
    assert main(["sweep", str(write({"base": BASE, "axes": axes}, folder / "s.toml")), "--plan", *more]) == 0
    return capsys.readouterr().err.splitlines()


def test_a_sweep_says_once_what_lies_beyond_its_end_and_of_which_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "broadcast.start = 151: this run ends after 6 rounds, so clients receive the model"
    axes = {"seed": [0, 1], "ima": LATE}
    assert planned(axes, tmp_path, capsys) == [f"ima=late: {line}"]
    assert planned(axes, tmp_path, capsys, "--only", "ima=late") == [line]
    assert planned(axes, tmp_path, capsys, "--set", "rounds=152") == []
    line = "averages.ima.start = 9: this run ends after 6 rounds, so it stays the model"
    assert planned({"seed": [0, 1], "averages.ima.start": [1, 9]}, tmp_path, capsys) == [f"start=9: {line}"]
    starts = {
        "a": {},
        "b": {"averages": {"ima": {"start": 9}}},
        "c": {"averages": {"ima": {"start": 9}}, "local": {"lr": 0.3}},
    }
    assert planned({"seed": [0, 1], "m": starts}, tmp_path, capsys) == [f"seed=0,b and 3 more: {line}"]


@pytest.mark.slow
def test_a_sweep_of_regressions_says_and_compares_their_rmse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "s")]) == 0
    out = capsys.readouterr().out
    assert "%" not in out and "model " in out
    assert main(["compare", str(tmp_path / "s")]) == 0
    assert "rmse on the test set; lower is better" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_says_one_line_a_run_and_none_for_rounds_that_runs_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forks = 'base.averages.w = { name = "window", size = 2 }\naxes.ima.off = {}\naxes.ima.on = { broadcast = "w" }\n'
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("axes.seed", f"{forks}axes.seed"))
    sweep = [str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "s")]
    assert main(["sweep", *sweep, "--plan"]) == 0
    assert "2 runs share" in capsys.readouterr().out
    assert main(["sweep", *sweep]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = sorted(line.split(": ")[0] for line in lines if line.startswith("runs/"))
    assert len(said) == len(set(said)) == 4
    assert not any("shared" in line for line in lines[1:] if not line.startswith("round "))  # the progress on the way
    assert all("model " in line for line in lines if line.startswith("runs/"))


@pytest.mark.slow
def test_a_sweep_says_which_runs_are_stuck(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP + 'axes."local.lr" = [1e9]\n')
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "s")]) == 0
    said = [line for line in " ".join(capsys.readouterr().out.split()).split("runs/") if ".0: " in line]
    assert said and all("stuck since round 1: every upload" in line for line in said)


def test_messages_that_can_not_be_read_are_a_death_and_no_wait(tmp_path: Path) -> None:
    child, heard = Child("platform", str(tmp_path / "log.txt"), str(tmp_path), {}), SimpleQueue[Message | StopRequest]()
    Process(child, heard)
    message = heard.get()
    assert isinstance(message, Message) and message.crash and "its messages can't be read" in message.reason
