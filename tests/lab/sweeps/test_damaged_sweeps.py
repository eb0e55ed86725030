"""Runs of a finished sweep that have lost files: the same command mends what it can, and names what is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from support.sweeps import BASE, contents, write

LOST = ("models", "config.toml", "goal.json", "summary.json", "metrics.jsonl")


def run(out: Path, size: int) -> Path:
    return out / "runs" / f"size={size}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's folder; beside it the sweep's file."""
    folder = tmp_path_factory.mktemp("damaged")
    sizes = [*range(1, len(LOST) + 1)]
    write({"base": BASE, "axes": {"averages.ima.size": sizes}}, folder / "s.toml")
    assert main(["sweep", str(folder / "s.toml"), "--out", str(folder / "out"), "--no-progress", "--jobs", "1"]) == 0
    return folder / "out"


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "out")
    shutil.copy(finished.parent / "s.toml", tmp_path)
    return tmp_path / "out"


def again(out: Path, *more: str) -> int:
    return main(["sweep", str(out.parent / "s.toml"), "--out", str(out), "--no-progress", "--jobs", "1", *more])


def test_a_plan_says_what_is_done_and_what_is_left(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run(out, 2) / "goal.json").unlink()
    shutil.rmtree(run(out, 3))
    assert again(out, "--plan") == 0
    title, shared, *segments = capsys.readouterr().out.splitlines()
    assert title == "5 runs, 30 rounds asked, 6 to train; 6 of them are trained, 0 left to train"
    assert shared == "  5 runs share: rounds 1 to 6; done"
    done = [f"    runs/size={size}: nothing to train{'; done' * (size not in (2, 3))}" for size in range(1, 6)]
    assert segments == done
    shutil.rmtree(out / "shared")
    assert again(out, "--plan") == 0
    assert "; 0 of" not in capsys.readouterr().out


def test_a_run_that_copies_shared_rounds_alone_and_lost_its_rows_is_not_one_that_has_not_begun(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = run(out, 1) / "metrics.jsonl"
    lost.unlink()
    assert main(["compare", str(out)]) == 2
    assert f"run size=1 is left out: {lost} is missing" in capsys.readouterr().err


def test_commands_that_are_printed_quote_a_folder_with_blanks(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = out.rename(out.with_name("drei Läufe"))
    assert again(folder) == 0
    assert f"compare them with: fedsash compare '{folder}'" in capsys.readouterr().out
    alone = run(folder, 1).rename(folder.with_name("ein Lauf"))
    (alone / "goal.json").unlink()
    assert main(["compare", str(alone)]) == 2
    assert f"write it again with fedsash resume '{alone}'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_same_command_mends_runs_whatever_file_they_have_lost(
    out: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size, name in enumerate(LOST, 1):
        path = run(out, size) / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert main(["compare", str(out)]) == 2
    left_out = capsys.readouterr().err
    goal = run(out, 3) / "goal.json"
    cure = f"remove {goal.with_name('summary.json')}, and the command of its sweep writes it again"
    assert f"{goal} is missing: {cure}" in left_out
    assert f"run size={len(LOST)} is left out: {run(out, len(LOST)) / 'metrics.jsonl'} is missing" in left_out
    assert again(out) == 0
    capsys.readouterr()
    for size, name in enumerate(LOST, 1):
        assert (run(out, size) / name).exists()
        assert contents(run(out, size)) == contents(run(finished, size))
    assert main(["compare", str(out)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_run_whose_file_was_cut_short_is_not_done(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = run(out, 1) / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-50])
    assert again(out) == 2
    (failed,) = capsys.readouterr().err.splitlines()
    assert "metrics.jsonl is damaged: up to round 6 it has" in failed
    assert failed.endswith(f"; remove {metrics.parent}, and the command of its sweep trains it again")
