"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsash import __version__
from fedsash.lab.cli import main
from fedsash.lab.config import load
from fedsash.vector.saved import saved_rounds
from support.by_default import full
from support.places import ROOT

ENGINE = '[engine]\nkind = "sequential"\nworkers = 1\ncompile = false\nmemory_format = "contiguous"\nthreads = 1\n'
ONE_PROCESS = ("engine.kind=sequential", "engine.workers=1", "engine.threads=1", "engine.compile=false")
WINDOW = '[averages.w]\nname = "window"\nsize = 2\n'
SMALL = "rounds = 2\n" + WINDOW + ENGINE


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` puts the current folder on the path: take it off again."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with code of one's own, which nothing has imported yet."""
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("mine", None)
    yield tmp_path / "mine.py"
    sys.modules.pop("mine", None)


def fedsash(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "fedsash", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line on standard error of a command that ends with exit code 2."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        code = stop.code
    out, error = capsys.readouterr()
    assert code == 2 and out == "" and error.count("\n") == 1
    return error


@pytest.mark.parametrize("name", ["averages/adaptive_broadcast", "clients/trace", full("digits_ima")])
def test_examples_run_from_the_command_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.chdir(ROOT)
    sets = [f"--set={override}" for override in ("evaluation.every=1", *ONE_PROCESS)]
    assert main(["run", f"examples/{name}.toml", "--out", str(out), "--rounds", "2", *sets]) == 0
    said = capsys.readouterr().out
    experiment = load(out / "config.toml")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rounds"] == experiment.rounds == 2
    assert set(summary["models"]) == {"model", *experiment.averages}
    assert all(model in said for model in summary["models"]) and str(out) in said
    for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()):
        assert {"round", "model", "split", "accuracy", "loss"} <= set(row)


def test_a_run_resumes_to_the_bytes_of_a_longer_run(experiment: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    assert main(["run", str(experiment), "--out", str(once), "--rounds", "4", "--set", "evaluation.every=4"]) == 0
    assert main(["run", str(experiment), "--out", str(twice), "--set", "evaluation.every=4"]) == 0
    assert main(["resume", str(twice), "--rounds", "4", "--no-progress"]) == 0
    assert load(once / "config.toml") == load(twice / "config.toml")
    for name in ("model", "w"):
        file = f"models/{name}.safetensors"
        assert (once / file).read_bytes() == (twice / file).read_bytes()


def test_a_fork_is_the_run_that_fed_from_that_round_on(experiment: Path, tmp_path: Path) -> None:
    base, fork, whole = tmp_path / "base", tmp_path / "fork", tmp_path / "whole"
    broadcast = ["--rounds", "4", "--set", "broadcast=w", "--set", "broadcast.start=2"]
    assert main(["run", str(experiment), "--out", str(base), "--set", "checkpoint.keep=[2]"]) == 0
    assert main(["run", str(experiment), "--out", str(fork), *broadcast, "--fork", f"{base}@2"]) == 0
    assert main(["run", str(experiment), "--out", str(whole), *broadcast]) == 0
    file = "models/model.safetensors"
    assert (fork / file).read_bytes() == (whole / file).read_bytes() != (base / file).read_bytes()


def test_what_is_set_on_the_command_line_is_in_the_runs_config(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    main(["run", str(experiment), "--out", str(out), "--set", "local.lr=0.5", "--seed", "0", "--rounds", "1"])
    config = tomllib.loads((out / "config.toml").read_text())
    assert config["local"]["lr"] == 0.5 and config["seed"] == 0 and config["rounds"] == 1


def test_no_progress_leaves_only_the_table(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", str(experiment), "--out", str(tmp_path / "run"), "--no-progress"])
    out = capsys.readouterr().out
    assert "round 2/2" not in out and "at the end" in out
    assert out.lstrip("\n") == out and all(line.rstrip() == line for line in out.splitlines())
    assert main(["partition", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("100 clients, 10 classes, 1,438 training samples\n")


def test_tensorboard_gets_a_folder_in_the_run(experiment: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "run"
    assert main(["run", str(experiment), "--out", str(out), "--set", "track=tensorboard"]) == 0
    assert sorted(path.name for path in (out / "tensorboard").iterdir()) == ["model", "w"]


PRESSING = """
import os, signal
from dataclasses import dataclass
from fedsash import Callback

@dataclass
class Pressing(Callback):
    def round(self, run, report):
        if run.round == 2:
            os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_says_how_to_go_on(mine: Path, experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine.write_text(PRESSING)
    own = ["--set", "callbacks.own.name=mine:Pressing", "--own-code", "--rounds", "1000000"]
    assert main(["run", str(experiment), "--out", "run", *own]) == 130
    assert capsys.readouterr().err == "stopped; go on with: fedsash resume run\n"
    assert saved_rounds(Path("run", "state")) == [2]
    assert main(["resume", "run", "--rounds", "3"]) == 0


@pytest.mark.full
def test_ctrl_c_to_the_command_says_how_to_go_on(tmp_path: Path) -> None:
    """Pressed at any moment, to a process of its own."""
    path, out = tmp_path / "experiment.toml", tmp_path / "run"
    path.write_text(SMALL.replace("rounds = 2", "rounds = 1_000_000") + "[evaluation]\nevery = 1\n")
    command = [sys.executable, "-m", "fedsash", "run", str(path), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert error == f"stopped; go on with: fedsash resume {out}\n"
    (round,) = saved_rounds(out / "state")
    assert main(["resume", str(out), "--rounds", str(round + 1)]) == 0


def test_an_error_in_the_file_is_one_line(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "run", experiment, "--out", tmp_path / "run", "--set", "local.lr=fast")
    assert line == f'fedsash: {experiment}: local.lr = "fast": must be a number\n'
    line = refused(capsys, "run", experiment, "--out", tmp_path / "run", "--set", "sampling.count=101")
    assert line.startswith(f"fedsash: {experiment}: sampling.count = 101: must be at most")
    line = refused(capsys, "partition", experiment, "--set", "partition.clients=0")
    assert line == f"fedsash: {experiment}: partition.clients = 0: must be at least 1\n"
    assert not (tmp_path / "run").exists()


def test_missing_files_are_one_line(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "run", "none.toml", "--out", tmp_path / "run")
    assert line == "fedsash: none.toml: there is no such file\n"
    assert "holds no run: there is no" in refused(capsys, "resume", tmp_path)
    fork = refused(capsys, "run", experiment, "--out", tmp_path / "run", "--fork", f"{tmp_path}@3")
    assert f"{tmp_path} holds no run" in fork
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train"], "invalid choice: 'train'"),
        (["rn"], "invalid choice: 'rn'; did you mean run? (see fedsash --help)"),
        (["run"], "the experiment is missing: name its file, or a function of yours with --federation"),
        (["run", "x.toml", "--out", "a", "--fork", "runs/a"], "'runs/a' must be RUN@ROUND, such as runs/a@300"),
        (["run", "x.toml", "--out", "a", "--rounds", "many"], "invalid int value: 'many'"),
        (["list", "servers", "adan"], 'server.name = "adan": must be one of'),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in refused(capsys, *arguments)


@pytest.mark.full
def test_a_bug_in_a_users_own_code_keeps_its_traceback(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def model():\n    return 1 / 0\n")
    done = fedsash("run", experiment, "--out", "run", "--set", "model.name=mine:model", "--own-code", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr and done.stderr.endswith("ZeroDivisionError: division by zero\n")


OWN = """
from dataclasses import dataclass
from fedsash.settings.errors import check
from fedsash.methods import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    size: int = 1

    def __post_init__(self):
        check(self.size > 0, "Mine.size", self.size, "must be positive")

    def direction(self, step):
        BUG
"""


@pytest.mark.parametrize(
    ("bug", "error", "line"),
    [
        ('int("x")', ValueError, "invalid literal for int"),
        ("list(zip([1], [], strict=True))", ValueError, "argument 2 is shorter"),
        ("{}[1]", KeyError, "1"),
        ("import no_such_thing", ModuleNotFoundError, "No module named 'no_such_thing'"),
    ],
)
def test_a_bug_in_an_own_method_keeps_its_traceback(
    bug: str, error: type[Exception], line: str, experiment: Path, mine: Path
) -> None:
    """The exception leaves the command, and Python prints it."""
    mine.write_text(OWN.replace("BUG", bug))
    with pytest.raises(error, match=line) as raised:
        main(["run", str(experiment), "--out", "run", "--set", "method.name=mine:Mine", "--own-code"])
    assert raised.type is error and "direction" in [frame.name for frame in raised.traceback]


def test_a_bad_value_of_an_own_method_is_one_line(
    experiment: Path, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.write_text(OWN.replace("BUG", "pass"))
    bad = ["--set", "method.name=mine:Mine", "--set", "method.size=0"]
    line = refused(capsys, "run", experiment, "--out", "run", *bad, "--own-code")
    assert line == f"fedsash: {experiment}: method.size = 0: must be positive\n"


def test_what_is_on_a_network_and_what_is_not_have_commands_of_their_own(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert "start it with fedsash network" in refused(
        capsys, "run", experiment, "--out", out, "--set", "network.retries=1"
    )
    assert "start it with fedsash run" in refused(capsys, "network", experiment, "--out", out)


@pytest.mark.pictures
def test_partition_shows_who_holds_what(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "clients.png"
    arguments = ["partition", str(experiment), "--set", "partition.clients=7", "--out", str(picture)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("7 clients, 10 classes, 1,438 training samples\n") and str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fedsash {__version__}\n"


def test_no_command_is_imported_before_it_is_used() -> None:
    program = "import sys; from fedsash.lab.cli import main; main([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = {name for name in done.stdout.split() if name.startswith("fedsash.lab.cli.")}
    assert modules == {f"fedsash.lab.cli.{name}" for name in ("arguments", "common")}


@pytest.mark.parametrize("command", [[], ["run"], ["resume"], ["partition"], ["list"]])
def test_help_teaches_by_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    out = capsys.readouterr().out
    assert "examples:\n  fedsash " in out and all(len(line) <= 120 for line in out.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="the command is a file in the folder of the interpreter")
def test_the_installed_command_is_the_module() -> None:
    script = Path(sys.executable).with_name("fedsash")
    if not script.exists():
        pytest.skip("fedsash is not installed as a command here")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, env=os.environ)
    assert done.stdout == f"fedsash {__version__}\n"
