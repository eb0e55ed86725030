"""Where commands write without `--out`, what `fedsash` alone says, and `--json`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.system.files import table
from support.experiments import WINDOW

ENGINE = '[engine]\nkind = "sequential"\nworkers = 1\ncompile = false\nmemory_format = "contiguous"\nthreads = 1\n'
SMALL = "rounds = 2\nevaluation.every = 1\n" + WINDOW + ENGINE
NETWORK = SMALL.replace("rounds = 2", "rounds = 2\nnetwork.link.rate = 1e6")
SWEEP = 'base = "small.toml"\n[axes]\nseed = [0, 1]\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "sim.toml").write_text(NETWORK)
    (tmp_path / "seeds.toml").write_text(SWEEP)
    return tmp_path


def folders() -> list[str]:
    return sorted(path.name for path in Path("runs").iterdir()) if Path("runs").exists() else []


def test_fedsash_alone_says_what_one_can_do_first_and_that_works(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out.splitlines()
    commands = [line.split("  ")[1].split() for line in said if line.startswith("  fedsash")]
    assert 5 <= len(commands) <= 7 and max(map(len, said)) <= 120
    assert [command[1] for command in commands[:3]] == ["init", "run", "report"]
    engine = ["--rounds", "2", "--set", "engine.kind=sequential", "--set", "engine.workers=1"]
    for command in commands[:3]:
        assert main([*command[1:], *(engine if command[1] == "run" else [])]) == 0
    assert (here / "runs/experiment/report.html").exists()


def test_a_run_has_a_folder_called_after_its_file_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("small", "small-2"):
        assert main(["run", "small.toml"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"folder: runs/{name}\n") and out.rstrip().endswith(f"runs/{name}")
    assert folders() == ["small", "small-2"]
    assert main(["resume", "runs/small", "--rounds", "3", "--no-progress"]) == 0
    assert main(["compare", "runs/small"]) == 0


def test_a_run_on_a_network_has_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "sim.toml", "--no-progress"]) == 0
    assert folders() == ["sim"] and capsys.readouterr().out.rstrip().endswith("runs/sim")


def test_a_federation_made_in_python_gives_its_name(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine_for_out.py").write_text(
        "import fedsash as fs\n\n\ndef build():\n    data = fs.data.Digits().load().partition(fs.IID(4))\n"
        "    return fs.Federation(fs.models.MLP((64,), 10), data, sampling=fs.Uniform(2))\n"
    )
    monkeypatch.syspath_prepend(here)
    assert main(["run", "--federation", "mine_for_out:build", "--rounds", "1", "--no-progress"]) == 0
    assert folders() == ["mine_for_out-build"]


def test_what_is_refused_leaves_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "none.toml"]) == 2
    assert main(["run", "small.toml", "--set", "local.lr=x"]) == 2
    assert main(["run", "small.toml", "--set", "sampling.count=1000"]) == 2
    assert capsys.readouterr().err.count("\n") == 3 and folders() == []


def test_runs_that_cannot_be_a_folder_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as a link to a disk that is not there: the search for a free name must end."""
    for name in ("file", "gone"):
        Path("runs").symlink_to(here / name)
        Path("file").touch()
        assert main(["run", "small.toml"]) == 2
        what = "a file" if name == "file" else "a link to nothing"
        assert capsys.readouterr().err == f"fedsash: {here / 'runs'} is {what}, and must be a folder\n"
        Path("runs").unlink()


@pytest.mark.slow
def test_the_same_sweep_goes_on_in_the_same_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "seeds.toml", "--only", "seed=0", "--no-progress", "--jobs", "1"]) == 0
    before = (Path("runs/seeds/runs/seed=0/summary.json")).read_bytes()
    assert main(["sweep", "seeds.toml", "--no-progress", "--jobs", "1"]) == 0
    assert folders() == ["seeds"] and Path("runs/seeds/runs/seed=0/summary.json").read_bytes() == before
    assert sorted(path.name for path in Path("runs/seeds/runs").iterdir()) == ["seed=0", "seed=1"]


def test_a_sweep_leaves_the_folder_of_a_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small.toml", "--no-progress"]) == 0
    before = sorted(Path("runs/small").iterdir())
    assert main(["sweep", "seeds.toml", "--out", "runs/small"]) == 2
    assert "runs/small holds a run, and no sweep: choose another folder with --out" in capsys.readouterr().err
    assert sorted(Path("runs/small").iterdir()) == before


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> object:
    """The one JSON document on standard output."""
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_json_has_the_answer_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    ran = answer(capsys, "run", "small.toml")
    summary = table(Path("runs/small/summary.json"))
    assert ran == {"folder": "runs/small", "interrupted": False, **summary}
    resumed = answer(capsys, "resume", "runs/small", "--rounds", "3")
    assert isinstance(resumed, dict) and resumed["rounds"] == 3
    simulated = answer(capsys, "network", "sim.toml")
    assert isinstance(simulated, dict) and simulated["network"]["trips"] > 0


def test_json_of_what_is_said_of_finished_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small.toml", "--set", "trajectory.every=1", "--no-progress"]) == 0
    rows = answer(capsys, "compare", "runs/small")
    summary = json.loads(Path("runs/small/summary.json").read_text())["models"]
    assert isinstance(rows, list) and {row["model"]: row["mean"] for row in rows} == {
        model: of["last_mean"] for model, of in summary.items()
    }
    one = answer(capsys, "average", "runs/small", "--window", "2")
    assert isinstance(one, list) and one[0]["run"] == "runs/small" and one[0]["error"] == 0
    found = answer(capsys, "average", "runs/small")
    assert isinstance(found, list) and found[0]["kind"] == "averages" and Path(found[0]["file"]).exists()
    segments = answer(capsys, "sweep", "seeds.toml", "--plan")
    assert isinstance(segments, list) and [(segment["folder"], segment["last"]) for segment in segments] == [
        ("runs/seed=0", 2),
        ("runs/seed=1", 2),
    ]
    held = answer(capsys, "partition", "small.toml")
    assert isinstance(held, dict) and len(held["counts"]) == 100


def test_an_error_with_json_is_one_line_and_no_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "none", "--json"]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1


@pytest.mark.slow
def test_a_stopped_run_says_so_as_json_and_nothing_else_is_on_standard_output(here: Path) -> None:
    """With its own process: nothing that a library prints may stand before the document."""
    (here / "long.toml").write_text(SMALL.replace("rounds = 2", "rounds = 1_000_000"))
    command = [sys.executable, "-m", "fedsash", "run", "long.toml", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = here / "runs" / "long" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    stopped = json.loads(out)
    assert process.returncode == 130 and stopped["interrupted"] and stopped["folder"] == "runs/long"
    assert error.endswith("stopped; go on with: fedsash resume runs/long\n")


def test_a_run_s_folder_that_is_no_text_is_refused_and_none_is_made(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "small.toml", "--out", os.fsdecode(b"caf\xe9")]) == 2
    assert r"caf\udce9: the name of a run's folder must be in UTF-8: choose another one" in capfd.readouterr().err
    assert sorted(path.name for path in here.iterdir()) == ["seeds.toml", "sim.toml", "small.toml"]
