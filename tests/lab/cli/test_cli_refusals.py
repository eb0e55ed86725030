"""What the command line refuses before any work, and how it ends when nobody reads its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsash.lab.cli import main


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` puts the current folder on the path: take it off again."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("command", ["list", "list averages"])
def test_a_closed_pipe_ends_a_command_here(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is gone, be it before the first lines are written or before the last ones."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as nobody_reads:
        monkeypatch.setattr(sys, "stdout", nobody_reads)
        assert main(command.split()) in (0, 141)
        nobody_reads.flush()  # as Python does when it ends


@pytest.mark.full
@pytest.mark.parametrize(
    "command", ["list", *(pytest.param(words, marks=pytest.mark.slow) for words in ("list averages", "--help"))]
)
def test_a_closed_pipe_ends_the_command_quietly(command: str) -> None:
    """As in `fedsash list | head -c 1`: the reader is gone before the output is written."""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "fedsash", *command.split()]
    ended = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert ended.stderr == b"" and ended.returncode in (0, 141)


@pytest.mark.parametrize("command", ["run", "network"])
def test_an_out_that_can_be_no_folder_is_refused_before_the_data_are_read(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, experiment = tmp_path / "file", tmp_path / "experiment.toml"
    file.write_text("mine")
    network = "network.link.rate = 1e6\n" if command == "network" else ""
    experiment.write_text(f'data = {{ name = "images", path = "./nowhere" }}\n{network}')
    for out, line in ((file, f"{file} is a file, and must be a folder"), (file / "run", f"{file} is a file")):
        assert main([command, str(experiment), "--out", str(out)]) == 2
        assert line in capsys.readouterr().err
    assert main([command, str(experiment), "--out", str(tmp_path / ("x" * 300))]) == 2
    assert "File name too long" in capsys.readouterr().err
    assert file.read_text() == "mine" and sorted(path.name for path in tmp_path.iterdir()) == [
        "experiment.toml",
        "file",
    ]


def test_other_commands_refuse_such_an_out_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, sweep = tmp_path / "file", tmp_path / "sweep.toml"
    file.touch()
    sweep.write_text("[axes]\nseed = [0, 1]\n")
    commands = (
        ["sweep", str(sweep), "--out", str(file)],
        ["reproduce", "ima-table-1", "--scale", "tiny", "--out", str(file)],
        ["report", str(tmp_path), "--out", str(file / "page.html")],
    )
    for command in commands:
        assert main(command) == 2
        assert f"{file} is a file, and must be a folder" in capsys.readouterr().err


def test_a_pipe_in_place_of_an_experiment_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "config.toml")
    for command in (["resume", str(tmp_path)], ["run", str(tmp_path / "config.toml"), "--out", str(tmp_path / "out")]):
        assert main(command) == 2
        assert "config.toml is a named pipe, and must be a file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_too_many_jobs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text("[axes]\nseed = [0, 1]\n")
    for jobs in ("0", "-3", str(10**30)):
        assert main(["sweep", str(sweep), "--out", str(tmp_path / "out"), "--jobs", jobs]) == 2
        assert "jobs = " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "e.toml", "--seed", "9" * 5000],
        ["resume", "r", "--rounds", "9" * 5000],
        ["average", "r", "--at", "x" * 5000],
    ],
)
def test_a_number_of_5000_digits_is_one_short_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err
    assert end.value.code == 2 and len(said) < 500 and said.count("\n") == 1


def test_an_unknown_option_names_the_command_and_the_nearest_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words, line in (
        ("average RUN --windw 40", "fedsash average: unknown: --windw 40; did you mean --window? (see fedsash average"),
        ("list --xqzxqz", "fedsash list: unknown: --xqzxqz (see fedsash list --help)"),
        ("network x.toml --rounds 12", "fedsash network: unknown: --rounds 12 (a setting: --set rounds=VALUE) (see"),
        ("--verson list", "fedsash: unknown: --verson; did you mean --version? (see fedsash --help)"),
    ):
        with pytest.raises(SystemExit):
            main(words.split())
        assert line in capsys.readouterr().err
