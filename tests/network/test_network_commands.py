"""Runs on a network from the command line and from files: their folders, Ctrl-C, what does not fit, the examples."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError, NetworkExperiment, load, parse
from fedsash.lab.studies.opened import open_run
from fedsash.methods.sampling import Uniform
from fedsash.network import (
    Synchronous,
)
from fedsash.runs.records import Records
from fedsash.vector.saved import saved_rounds
from support.experiments import trained
from support.observing import Evaluated, final
from support.places import ROOT

EXAMPLES = sorted((ROOT / "examples" / "network").glob("*.toml"))


SMALL = """
rounds = 6
[partition]
name = "iid"
clients = 5
[model]
name = "mlp"
hidden = []
[evaluation]
every = 2
target = 0.2
[engine]
kind = "sequential"
workers = 1
threads = 1
compile = false
memory_format = "contiguous"
[averages.w]
name = "window"
size = 2
[network.clients]
spread = 0.5
[scheduler]
name = "fedwindow"
window = 2
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "experiment.toml"
    path.write_text(SMALL)
    return path


def test_the_command_leaves_an_ordinary_run_with_a_time_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["network", str(file), "--out", str(out), "--no-progress"]) == 0
    assert "6 rounds of 5 clients" in capsys.readouterr().out
    files = {path.name for path in out.iterdir()}
    assert files == {
        *("config.toml", "metrics.jsonl", "summary.json", "timeline.json", "models"),
        *("timeline.png", "link.png", "progress.png", "curves.png"),
        *("engine.json", "goal.json", "partition.json", "model.json", "state", "files.json"),
    }
    rows = Records(out).load().rows()
    tests = [row for row in rows if row["split"] == "test"]
    assert {row["model"] for row in tests} == {"model", "w"} and all(row["trips"] == row["round"] for row in tests)
    sums = [row for row in rows if row["split"] == "network"]
    assert [row["round"] for row in sums] == [1, 2, 3, 4, 5, 6]
    assert all(earlier["time"] < later["time"] for earlier, later in pairwise(sums))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["network"]["trips"] == 6 and summary["target"]["model"]["trips"] <= 6
    experiment = load(file)
    assert replace(load(out / "config.toml"), engine=experiment.engine) == experiment
    assert main(["network", str(file), "--out", str(out)]) == 2
    assert "holds a run already" in capsys.readouterr().err


@pytest.mark.parametrize("scheduler", ["fedwindow", pytest.param("synchronous", marks=pytest.mark.slow)])
def test_ctrl_c_saves_and_the_command_resume_goes_on(
    scheduler: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    if scheduler == "synchronous":
        file.write_text(SMALL.replace('"fedwindow"\nwindow = 2', '"synchronous"'))
    experiment = load(file)

    def press(round: int, metrics: list[Score]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    trained(experiment, whole)
    assert trained(experiment, stopped, [Evaluated(press)]).interrupted
    assert main(["resume", str(stopped), "--no-progress"]) == 0
    assert "6 rounds of 5 clients" in capsys.readouterr().out
    assert final(stopped) == final(whole)
    assert main(["resume", str(stopped), "--no-progress", "--rounds", "8"]) == 0
    assert json.loads((stopped / "summary.json").read_text())["rounds"] == 8


def test_the_command_says_how_to_go_on_after_ctrl_c(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["--set", "rounds=100000", "--set", "evaluation.every=100000"]

    def press() -> None:
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    assert main(["network", str(file), "--out", str(tmp_path / "run"), "--no-progress", *overrides]) == 130
    pressing.join()
    assert f"stopped; go on with: fedsash resume {tmp_path / 'run'}" in capsys.readouterr().err
    assert len(saved_rounds(tmp_path / "run" / "state")) in (1, 2)


def test_a_study_of_time_that_is_gone_on_with_is_done_again(tmp_path: Path) -> None:
    table = {
        "network": {"learning": False, "bytes": 1000, "clients": {"count": 9}},
        "rounds": 30,
        "scheduler": {"name": "fedasync"},
    }
    experiment = parse(table)
    experiment.study(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("metrics.jsonl", "timeline.json")}
    assert main(["resume", str(tmp_path), "--no-progress"]) == 0
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    with pytest.raises(ValueError, match="holds a run already"):
        experiment.study(tmp_path)


def test_a_run_on_a_network_can_be_opened(file: Path, tmp_path: Path) -> None:
    """Its saved states hold the models; that of a single client makes sense in rounds alone."""
    out = tmp_path / "run"
    trained(load(file, ["checkpoint.every=3"]), out)
    with closing(open_run(out)) as opened:
        assert opened.rounds == [3, 6]
        assert torch.equal(opened.model("round:6"), opened.model("model"))
        assert torch.equal(opened.model("w@6"), opened.model("w"))
        with pytest.raises(ValueError, match="here every client trains in its own time"):
            opened.model("client:0@3")


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("scheduler.window=6", "ConstantWindow.size = 6: must be at most the number of clients, 5"),
        ("network.lnk.rate=1", "unknown key network.lnk; did you mean network.link?"),
        ("scheduler.name=fedwindo", "did you mean fedwindow?"),
        ("scheduler.slide=3", "FedWindow.slide = 3: must be at most the window's size, 2"),
        ("scheduler.order=[0, 1, 2]", "FedWindow.order = (0, 1, 2): must name each of the 5 clients once, from 0 to 4"),
        ("scheduler.order='random'", 'scheduler.order = "random": must be "index" or "shuffled" or a list of integers'),
        ("scheduler.window={name='aimd'}", "FedWindow.pipelined = False: must be true"),
        ("sampling.count=2", "sampling: the scheduler fedwindow says itself who trains"),
        ("method.name=scaffold", "method = 'Scaffold'"),
        ("server={name='adam', lr=0.1}", "server = "),
        ("network.clients.count=7", "network.clients.count = 7: the partition makes 5"),
        ("network.learning=false", "network.bytes = None: must be given"),
        ("network.clients.on=3", "network.clients.on, off"),
        ("network.clients.trace=none.csv", "can't be read"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    override: str, line: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["network", str(file), "--out", str(tmp_path / "run"), "--set", override]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(("method", "sends_more"), [("scaffold", True), ("fedcm", True), ("fedprox", False)])
def test_a_study_of_time_takes_methods_that_send_the_model_alone(method: str, sends_more: bool) -> None:
    """Its messages are of one model each way, so SCAFFOLD would take as long as FedAvg, which sends half as much."""
    table = {"network": {"learning": False, "bytes": 1000, "clients": {"count": 9}}, "method": {"name": method}}
    if not sends_more:
        assert parse(table).table()["method"]["name"] == method
        return
    with pytest.raises(ConfigError, match=f"method: {method} may send more vectors than the model: a study of time"):
        parse(table)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_complete_and_say_how_they_are_run(path: Path) -> None:
    experiment = load(path)
    assert parse(experiment.table()) == experiment
    assert f"fedsash network examples/network/{path.name} --out" in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, tmp_path: Path) -> None:
    experiment = load(path, ["rounds=20"])
    out = tmp_path / "run"
    result = experiment.study(out) if experiment.stateless else trained(experiment, out)
    assert result.summary["rounds"] == 20


def test_a_file_with_neither_table_is_not_on_a_network() -> None:
    plain = parse({"partition": {"name": "iid", "clients": 3}})
    assert not isinstance(plain, NetworkExperiment) and plain.sampling == Uniform()
    experiment = parse({"partition": {"name": "iid", "clients": 3}, "network": {}})
    assert isinstance(experiment, NetworkExperiment)
    assert experiment.scheduler == Synchronous() and experiment.sampling == Uniform(fraction=1.0)
    assert parse({"network": {}, "sampling": {"count": 5}}).sampling == Uniform(5)
    with pytest.raises(ConfigError, match='scheduler = "fedbuff": must be a table'):
        parse({"scheduler": "fedbuff"})
