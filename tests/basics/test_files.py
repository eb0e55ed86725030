"""Files are written completely or not at all, and a file that was changed since is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedsash import RunError
from fedsash.basics import files
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.lab.config import load
from fedsash.runs import terminal
from fedsash.runs.records import Records
from support.observing import Crash, Evaluated, crash_at, final, go_on, observed, start

CONFIG = """
rounds = 4
partition = { name = "dirichlet", clients = 10, alpha = 0.1 }
model = { name = "mlp", hidden = [8] }
sampling = { name = "uniform", count = 3 }
averages.w = { name = "window", size = 2 }
evaluation.every = 1
checkpoint.every = 2
engine = { kind = "sequential", workers = 1, compile = false, memory_format = "contiguous", threads = 1 }
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "a.toml").write_text(CONFIG)
    assert main(["run", str(folder / "a.toml"), "--out", str(folder / "run"), "--no-progress"]) == 0
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def commands(run: Path) -> dict[str, list[str]]:
    """Commands that read a run's files."""
    return {
        "report": ["report", str(run), "--out", str(run.parent / "page.html")],
        "compare": ["compare", str(run)],
        "resume": ["resume", str(run), "--no-progress"],
        "landscape": ["landscape", str(run), "--models", "w", "--points", "3"],
    }


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: list[Callable[[Path], None]] = [flip, empty, os.remove, lambda path: path.write_text("[[[1]]]")]
READERS = {
    "metrics.jsonl": ("report", "compare", "resume"),
    "summary.json": ("report", "compare"),
    "partition.json": ("report", "compare"),
    "config.toml": ("report", "compare", "resume", "landscape"),
    "engine.json": ("resume",),
    "models/w.safetensors": ("landscape",),
    "files.json": ("report", "compare", "landscape"),
}


@pytest.mark.parametrize("name", READERS)
def test_whoever_reads_a_changed_file_says_so_in_one_line(
    name: str, run: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for damage in DAMAGE:
        if (name, damage) == ("files.json", os.remove):
            continue  # then nothing is checked
        damage(run / name)
        for command in READERS[name]:
            before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
            assert main(commands(run)[command]) == 2, (name, command)
            error = capsys.readouterr().err
            assert error.count("\n") == 1 and str(run / name) in error, error
            assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
            assert not (run.parent / "page.html").exists()
        shutil.copy(finished / name, run / name)


@pytest.mark.parametrize("name", ["summary.json", "partition.json", "models/w.safetensors"])
def test_resume_writes_again_what_it_does_not_read(name: str, run: Path, finished: Path) -> None:
    flip(run / name)
    assert main(commands(run)["resume"]) == 0
    assert final(run) == final(finished)
    assert files.read(run / "partition.json") == files.read(finished / "partition.json")
    assert files.table(run / "summary.json")["models"] == files.table(finished / "summary.json")["models"]


def test_files_of_others_in_the_folder_do_no_harm(run: Path, finished: Path) -> None:
    (run / "notes.txt").write_text("mine")
    (run / "models" / "other.safetensors").write_bytes(b"theirs")
    for command in ("report", "compare", "resume"):
        assert main(commands(run)[command]) == 0
    assert (run / "notes.txt").read_text() == "mine"


def test_without_the_list_of_checksums_files_are_taken_as_they_are(run: Path) -> None:
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("seed = 0", "seed = 0  # mine"))
    assert main(commands(run)["report"]) == 2
    (run / "files.json").unlink()
    assert main(commands(run)["report"]) == 0
    assert main(commands(run)["resume"]) == 0
    assert main(commands(run)["report"]) == 0 and (run / "files.json").exists()


def test_a_running_run_can_be_read_at_any_moment(tmp_path: Path) -> None:
    lengths: list[int] = []

    def look(round: int, metrics: list[Score]) -> None:
        lengths.append(len(Records(tmp_path / "run").load().rows()))
        files.table(tmp_path / "run" / "partition.json")

    start(observed(), 4, tmp_path / "run", every=2, callbacks=[Evaluated(look)])
    assert lengths == sorted(set(lengths)) and len(lengths) == 4


def test_rows_after_the_last_state_are_dropped_without_an_alarm(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        start(observed(), 6, tmp_path / "run", every=2, callbacks=[crash_at(5)])
    Records(tmp_path / "run").load().rows()
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 5, "mod')  # a process was killed while it wrote this line
    Records(tmp_path / "run").load().rows()
    go_on(observed(), 6, tmp_path / "run", every=2)
    start(observed(), 6, tmp_path / "whole", every=2)
    assert final(tmp_path / "run") == final(tmp_path / "whole")


def kill_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop at a moment's renaming of a file, before it."""
    count = [0]
    rename = os.replace

    def replace(*names: Any) -> None:
        count[0] += 1
        if count[0] == moment:
            raise SystemExit
        rename(*names)

    monkeypatch.setattr(os, "replace", replace)


def test_whenever_the_writer_is_killed_the_files_are_as_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in range(1, 6):
        folder = tmp_path / str(moment)
        folder.mkdir()
        files.write(folder, [("a", b"old a"), ("b", b"old b")])
        with monkeypatch.context() as patch:
            kill_at(moment, patch)
            with suppress(SystemExit):
                files.write(folder, [("a", b"new a"), ("b", b"new b"), ("c", b"new c")])
        for name in ("a", "b"):
            assert files.read(folder / name) in (f"old {name}".encode(), f"new {name}".encode())
        files.write(folder, [("a", b"third")])
        assert files.read(folder / "a") == b"third"
        assert not list(folder.glob(".*"))


def test_the_next_session_clears_up_after_a_killed_one(run: Path, finished: Path) -> None:
    (run / "trajectory").mkdir()
    left = [
        ".metrics.jsonl.tmp",
        ".files.json.tmp",
        "models/.w.safetensors.tmp",
        "trajectory/.00000002.safetensors.tmp",
    ]
    for name in left:
        (run / name).write_text("half")
    for name in (".00000004.tmp", ".00000002.old.tmp"):
        (run / "state" / name).mkdir()
        (run / "state" / name / "state.json").write_text("half")
    assert main(commands(run)["resume"]) == 0
    assert not list(run.rglob(".*")) and final(run) == final(finished)


def test_a_full_disk_leaves_the_old_files(tmp_path: Path) -> None:
    files.write(tmp_path, [("a", b"old")])

    def contents() -> Any:
        yield "a", b"new"
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.write(tmp_path, contents())
    assert files.read(tmp_path / "a") == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "files.json"]


def test_a_link_beside_a_file_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / f".a.{os.getpid()}.tmp").symlink_to(tmp_path / "mine")
    files.replace_file(tmp_path / "a", b"new")
    assert (tmp_path / "mine").read_text() == "precious" and (tmp_path / "a").read_bytes() == b"new"


def test_two_processes_that_write_a_file_do_not_meet_on_the_way(tmp_path: Path) -> None:
    """The other one waits in the middle; ours ends, and the other then puts its own, complete, in the place."""
    code = """
import os, sys
from pathlib import Path
from fedsash.basics.paths import beside
from fedsash.basics import files

path = Path(sys.argv[1])
files._write_beside(path, b"theirs")
print("written", flush=True)
input()
os.replace(beside(path), path)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "written\n"
        files.replace_file(tmp_path / "a", b"ours")
        assert (tmp_path / "a").read_bytes() == b"ours"
        assert other.communicate("go\n") == ("", None) and other.returncode == 0
    assert (tmp_path / "a").read_bytes() == b"theirs" and [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_process_has_left_goes_with_the_next_writing(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, going = (tmp_path / f".a.{number}.tmp" for number in (ended.pid, os.getppid()))
    for file in (left, going, tmp_path / ".b.1.tmp"):
        file.write_bytes(b"half")
    files.replace_file(tmp_path / "a", b"new")
    assert {path.name for path in tmp_path.iterdir()} == {"a", going.name, ".b.1.tmp"}


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 10**5, "9" * 5000, "\xff", '{"a": 2, "checksum": 1}'])
def test_a_table_that_is_none_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RunError, match=r"a\.json") as refused:
        files.table(tmp_path / "a.json")
    assert "\n" not in str(refused.value)


def test_a_table_knows_its_own_checksum(tmp_path: Path) -> None:
    files.write_table(tmp_path / "a.json", {"a": [1, 2.5, None], "ä": {"b": "c"}})
    assert files.table(tmp_path / "a.json") == {"a": [1, 2.5, None], "ä": {"b": "c"}}
    assert json.loads((tmp_path / "a.json").read_text())["checksum"]
    (tmp_path / "a.json").write_text((tmp_path / "a.json").read_text().replace("2.5", "3.5"))
    with pytest.raises(RunError, match=r"a\.json is damaged"):
        files.table(tmp_path / "a.json")


@pytest.mark.parametrize("content", ['["a.txt"]', '{"a": 1}', "3"])
def test_a_list_of_files_that_is_not_ours_is_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / "files.json").write_text(content)
    (tmp_path / "e.toml").write_text("rounds = 7")
    assert load(tmp_path / "e.toml").rounds == 7


def test_a_changed_experiment_of_a_run_is_damaged_and_not_called_another_format(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(run / "config.toml")
    assert main(commands(run)["resume"]) == 2
    said = capsys.readouterr().err
    assert "config.toml is damaged: put the right one back" in said and "TOML" not in said


def test_an_error_names_the_file_and_not_the_one_beside_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'[^']*/nowhere/x\.png'"):
        files.replace_file(tmp_path / "nowhere" / "x.png", b"")


def test_json_has_no_control_character_so_that_a_terminal_prints_it_as_it_is() -> None:
    text = files.json_of({"a\x7f": ["\x1b\u200b\n"]}).decode()
    assert json.loads(text) == {"a\x7f": ["\x1b\u200b\n"]} and terminal.visible(text) == text


def test_a_file_is_durable_with_the_names_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noted(opened: int) -> None:
        synced.append(Path(f"/proc/self/fd/{opened}").resolve())
        fsync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    (tmp_path / "models").mkdir()
    files.write(tmp_path, [("a.json", b"{}"), ("models/b", b"b")])
    assert {tmp_path, tmp_path / "models"} <= {*synced}
    synced.clear()
    files.replace_file(tmp_path / "c", b"c")
    assert synced[-1] == tmp_path
