"""Runs whose federation a function of one's own makes: from the command line, and after a run in Python."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fedsash as fs
from fedsash.lab.cli import main
from fedsash.lab.config import OwnExperiment, load_own, parse
from support.observing import final, rows

MINE = """
import sys
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
import fedsash as fs

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features, self.classifier = nn.Sequential(nn.Linear(4, width), nn.Tanh()), nn.Linear(width, 3)

    def forward(self, x):
        return self.classifier(self.features(x))

def smoothed(output, y):
    return F.cross_entropy(output, y, reduction="none", label_smoothing=0.1)

def build(lr: float = 0.1, seed: int = 0) -> fs.Federation:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(150, 4)).astype("float32")
    y = (x @ rng.normal(size=(4, 3))).argmax(1)
    clients = [range(10 * i, 10 * i + 10) for i in range(10)]
    data = fs.FederatedData.from_arrays(x, y, clients, test=(x[100:], y[100:]), task=fs.Classification())
    torch.manual_seed(seed)
    return fs.Federation(
        Net(8), data, loss=smoothed, local=fs.LocalTraining(lr=lr, batch=5), averages={"w": fs.Window(2)},
        sampling=fs.Uniform(3), evaluation=fs.Evaluation(every=1, last=2), seed=seed, device="cpu",
        engine=fs.LocalEngine("sequential", workers=1, threads=1, compile=False),
    )

def number():
    return 3

if __name__ == "__main__":
    fs.run(build(), 6, out=sys.argv[1], checkpoint=fs.Checkpoint(2, keep=(2,)), until=4, progress=False)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with code of one's own that nobody has allowed yet."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another test's
    monkeypatch.setattr("fedsash.settings.resolve._resolved", set())
    yield tmp_path
    sys.modules.pop("mine", None)


def made_in_python(folder: Path) -> Path:
    """A run that a script has begun and not finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mine.py", "runs/mine"])
        runpy.run_path("mine.py", run_name="__main__")
    return folder / "runs" / "mine"


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.slow
def test_a_run_of_a_script_goes_on_and_is_studied_by_naming_its_function(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = made_in_python(folder)
    for words in (["resume", "runs/mine"], ["flatness", "runs/mine", "--models", "model"]):
        error = refused(capsys, *words)
        assert (
            "built_by is empty: the run was made in Python: name the function that makes the federation, --federation"
            in error
        )
        assert "holds no run" not in error
    study = ["flatness", "runs/mine", "--models", "model,w", "--samples", "20", "--federation", "mine:build"]
    assert main(study) == 0
    assert main(["resume", "runs/mine", "--federation", "mine:build", "--no-progress"]) == 0
    assert main(["run", "--federation", "mine:build", "--rounds", "6", "--out", "runs/whole", "--no-progress"]) == 0
    assert final(out) == final(folder / "runs" / "whole")
    assert main(["window", "runs/mine", "--average", "w"]) == 0, "config.toml knows the function by now"
    assert main(["resume", "runs/mine", "--rounds", "7", "--set", "checkpoint.every=1", "--no-progress"]) == 0
    assert rows(out)[-1]["round"] == 7 and 'built_by = "mine:build"' in (out / "config.toml").read_text()


def test_report_and_compare_take_runs_of_scripts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("mine", None)
    sys.path.insert(0, str(folder))
    from mine import build  # type: ignore[import-not-found]

    for name, lr in (("a", 0.1), ("b", 0.3)):
        fs.run(build(lr), 2, out=folder / name, progress=False)
    assert main(["report", "a", "b", "--out", "page.html"]) == 0
    page = (folder / "page.html").read_text()
    assert "made in Python, by a program that this page does not know: a" in page
    assert "fedsash run a/config.toml" not in page
    capsys.readouterr()
    assert main(["compare", "a", "b"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[3:]] == [
        [run, model] for run in "ab" for model in ("model", "w")
    ]


def test_another_federation_is_refused_by_what_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_in_python(folder)
    other = ["--federation", "mine:build", "--set", "options.lr=0.5"]
    error = refused(capsys, "resume", "runs/mine", *other)
    assert "holds a run of another experiment: local is" in error and "To change it on purpose, fork" in error
    from mine import build

    with pytest.raises(fs.RunError, match="holds a run of another federation: local is"):
        fs.open_run("runs/mine", federation=build(lr=0.5))
    opened = fs.open_run("runs/mine", federation=build())
    assert opened.rounds == [2, 4] and torch.equal(opened.model("round:4"), opened.model("model"))


def test_a_function_that_was_called_with_arguments_is_named_with_them_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sys.modules.pop("mine", None)
    sys.path.insert(0, str(folder))
    from mine import build

    fs.run(build(lr=0.3), 2, out="runs/mine", progress=False)
    study = ["flatness", "runs/mine", "--models", "model"]
    error = refused(capsys, *study, "--federation", "mine:build")
    assert error.endswith("--federation mine:build --set options.NAME=VALUE\n")
    name = ["--federation", "mine:build", "--set", "options.lr=0.3", "--no-progress"]
    assert main(["resume", "runs/mine", *name]) == 0
    assert fs.open_run("runs/mine").federation.local.lr == 0.3


def test_wrong_names_and_contradictions_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "experiment.toml").write_text('built_by = "mine:build"\n')
    own = ("run", "--out", "r", "--federation", "mine:build")
    for words, line in {
        (*own, "experiment.toml"): "goes without a file; there it is built_by",
        ("run", "experiment.toml", "--out", "r"): "built_by = 'mine:build': names code outside fedsash; if you trust",
        ("run", "--federation", "mine:biuld", "--out", "r"): "has no attribute 'biuld'",
        ("run", "--federation", "mine:number", "--out", "r"): "mine:number: built_by = 'mine:number': must return a",
        (*own, "--set", "options.rate=1"): "unknown key options.rate; known are lr, seed",
        (*own, "--set", "options.lr=fast"): 'options.lr = "fast": must be a number',
        (*own, "--set", "local.lr=1"): "local: the function in built_by decides it, its arguments are options; "
        "beside it there are rounds, options, checkpoint, trajectory, callbacks, track",
        ("flatness", "nowhere", "--models", "model", *own[3:]): "nowhere holds no run: there is no",
    }.items():
        assert line in refused(capsys, *words)
    assert not (folder / "r").exists()


def test_a_run_of_a_file_knows_its_federation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--federation", "mine:build", "--rounds", "1", "--out", "own", "--no-progress"]) == 0
    (folder / "plain.toml").write_text("rounds = 1\npartition.clients = 5\nsampling.count = 1\nengine.workers = 1\n")
    assert main(["run", "plain.toml", "--out", "plain", "--no-progress"]) == 0
    error = refused(capsys, "resume", "plain", "--federation", "mine:build")
    assert "this run was made from an experiment file, which says what its federation is" in error
    (folder / "own" / "config.toml").unlink()
    assert "is missing" in refused(capsys, "resume", "own")


def test_a_file_names_the_function_with_its_arguments(folder: Path) -> None:
    experiment = load_own(
        "mine:build", ["options.lr=0.3", "rounds=3", "callbacks.s={name='early_stopping', on='test'}"]
    )
    assert isinstance(experiment, OwnExperiment) and parse(experiment.table(), own_code=True) == experiment
    assert experiment.federation().local.lr == 0.3
    assert set(experiment.table()) == {
        *("rounds", "built_by", "options", "checkpoint", "trajectory", "callbacks", "track")
    }


def test_partition_shows_the_clients_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "--federation", "mine:build"]) == 0
    assert "10 clients" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_varies_the_arguments_of_the_function(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = '[base]\nbuilt_by = "mine:build"\nrounds = 2\n'
    (folder / "sweep.toml").write_text(f'{base}[axes]\n"options.seed" = [0, 1]\n"options.lr" = [0.1, 0.3]\n')
    assert main(["sweep", "sweep.toml", "--out", "s", "--own-code", "--no-progress"]) == 0
    assert len(list((folder / "s" / "runs").iterdir())) == 4
    capsys.readouterr()
    assert main(["compare", "s"]) == 0


EVIL = "open('ran', 'w').write('evil')\nfrom fedsash.methods import FedAvg\nclass Bad(FedAvg):\n    pass\n"
TAKES_A_METHOD = """
from fedsash.methods import FedAvg, Method
import mine

def build(method: Method = FedAvg()):
    return mine.build()
"""


def test_options_name_other_code_only_where_it_is_allowed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "evil.py").write_text(EVIL)
    (folder / "takes.py").write_text(TAKES_A_METHOD)
    words = ["run", "--federation", "takes:build", "--rounds", "1", "--no-progress"]
    named = ["--set", "options.method={name='evil:Bad'}"]
    asked = 'options.method.name = "evil:Bad": names code outside fedsash'
    assert asked in refused(capsys, *words, *named, "--out", "r")
    assert main([*words, "--out", "r"]) == 0
    file = folder / "r" / "config.toml"
    file.write_text(file.read_text() + "\n[options.method]\nname = 'evil:Bad'\n")
    assert asked in refused(capsys, "resume", "r", "--rounds", "2")
    assert not (folder / "ran").exists()
    assert main([*words, *named, "--own-code", "--out", "allowed"]) == 0
    assert (folder / "ran").exists()
