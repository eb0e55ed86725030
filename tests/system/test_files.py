"""Files are written completely or not at all, and a file that was changed since is named."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash import RunError
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.runs import terminal
from fedsash.runs.model_files import lost_models, read_model, write_models
from fedsash.runs.records import Records
from fedsash.system import files
from fedsash.system.host import Disk, host, make_folders
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
    "goal.json": ("report", "compare"),
    "engine.json": ("resume",),
    "models/w.safetensors": ("landscape",),
    "files.json": ("landscape",),
}
NOT_WRITTEN_YET = ("summary.json", "partition.json", "models/w.safetensors", "files.json")
"""If they are removed, the folder is like one of a run that was killed before it wrote them."""


@pytest.mark.parametrize("name", READERS)
def test_whoever_reads_a_changed_file_says_so_in_one_line(
    name: str, run: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for damage in DAMAGE:
        if damage is os.remove and name in NOT_WRITTEN_YET:
            continue
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
    assert (run / "partition.json").read_bytes() == (finished / "partition.json").read_bytes()
    assert files.table(run / "summary.json")["models"] == files.table(finished / "summary.json")["models"]


def test_files_of_others_in_the_folder_do_no_harm(run: Path, finished: Path) -> None:
    (run / "notes.txt").write_text("mine")
    (run / "models" / "other.safetensors").write_bytes(b"theirs")
    for command in ("report", "compare", "resume"):
        assert main(commands(run)[command]) == 0
    assert (run / "notes.txt").read_text() == "mine"


def test_an_experiment_is_a_plain_file_and_its_numbers_are_guarded_by_the_state(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(f"{config}# mine\n")
    for command in ("report", "compare", "resume"):
        assert main(commands(run)[command]) == 0
    (run / "config.toml").write_text(config.replace("alpha = 0.1", "alpha = 0.5"))
    assert main(commands(run)["resume"]) == 2
    assert "holds a run of another experiment" in capsys.readouterr().err
    (run / "config.toml").write_text(config.replace("=", "", 1))
    for command in commands(run):
        capsys.readouterr()
        assert main(commands(run)[command]) == 2
        assert "config.toml" in capsys.readouterr().err


def test_a_model_without_a_seal_is_taken_as_it_is_and_the_next_session_seals_it(run: Path) -> None:
    shutil.copy(run / "models" / "model.safetensors", run / "models" / "w.safetensors")
    (run / "files.json").unlink()
    assert main(commands(run)["landscape"]) == 0
    assert main(commands(run)["resume"]) == 0 and (run / "files.json").exists()
    shutil.copy(run / "models" / "model.safetensors", run / "models" / "w.safetensors")
    assert main(commands(run)["landscape"]) == 2


@pytest.mark.parametrize("damage", DAMAGE[:2])
def test_a_damaged_index_is_written_anew_by_the_next_session(damage: Callable[[Path], None], run: Path) -> None:
    whole = (run / "files.json").read_bytes()
    damage(run / "files.json")
    assert main(commands(run)["resume"]) == 0
    assert (run / "files.json").read_bytes() == whole


def test_rows_are_those_of_which_the_newest_state_has_the_mark(run: Path) -> None:
    """A reader that loads no state refuses them, too, and one whose newest state is damaged goes by the one before."""
    records = Records(run)
    whole = records.path.read_bytes()
    lines = whole.splitlines(keepends=True)
    (run / "state" / "00000004" / "state.json").write_text("{")
    for changed in (lines[:-1], [*lines, *lines]):
        records.path.write_bytes(b"".join(changed))
        records.load()
    for changed in (lines[:1], lines[1:], [lines[1], lines[0], *lines[2:]], []):
        records.path.write_bytes(b"".join(changed))
        with pytest.raises(RunError, match=r"metrics\.jsonl is damaged: up to round 2 it has"):
            records.load()
    shutil.rmtree(run / "state")
    records.load()


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


def test_whenever_the_writer_is_killed_the_models_are_as_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two renamings for each model, one of the index and one of its file, and a last one of the index."""
    for first, second in product(range(1, 8), repeat=2):
        folder = tmp_path / f"{first}-{second}"
        folder.mkdir()
        write_models(folder, [("a", b"old a"), ("b", b"old b")])
        for word, moment in (("new", first), ("newest", second)):
            with monkeypatch.context() as patch:
                kill_at(moment, patch)
                with suppress(SystemExit):
                    write_models(folder, [(name, f"{word} {name}".encode()) for name in "abc"])
            for name in "ab":
                assert read_model(folder, name).decode() in (f"old {name}", f"new {name}", f"newest {name}")
        write_models(folder, [("a", b"third")])
        assert read_model(folder, "a") == b"third"
        assert not list(folder.rglob(".*"))
        (folder / "models" / "b.safetensors").write_bytes(b"other")
        with pytest.raises(RunError, match=r"b\.safetensors is damaged: write it again with fedsash resume"):
            read_model(folder, "b")
        (folder / "models" / "b.safetensors").unlink()
        assert "models/b.safetensors" in lost_models(folder)


@pytest.mark.full
@pytest.mark.parametrize("beginning", ["run", "resume"])
def test_a_run_that_is_killed_between_any_two_of_its_files_ends_with_the_same_bytes(
    beginning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each file that takes its place: as the run begins, when it saves, and at its end."""
    start(observed(), 3, tmp_path / "whole", every=2)
    kinds = [path for path in (tmp_path / "whole").iterdir() if path.suffix == ".json"]
    moment = 0
    ended = False
    while not ended:
        moment += 1
        folder = tmp_path / str(moment)
        if beginning == "resume":
            start(observed(), 2, folder, every=2)
        with monkeypatch.context() as patch:
            kill_at(moment, patch)
            try:
                (start if beginning == "run" else go_on)(observed(), 3, folder, every=2)
                ended = True
            except SystemExit:
                pass
        begun = (folder / "metrics.jsonl").exists()
        (go_on if begun else start)(observed(), 3, folder, every=2)
        assert final(folder) == final(tmp_path / "whole")
        assert not [path for path in folder.rglob(".*") if path.name != ".lock"]
        for path in kinds:
            assert files.table(folder / path.name, sealed=True).keys() == files.table(path).keys()
    assert moment > 10


def test_the_next_session_clears_up_after_a_killed_one(run: Path, finished: Path) -> None:
    (run / "trajectory").mkdir()
    dead = 2**31
    left = [
        f".metrics.jsonl.{dead}.tmp",
        f".files.json.{os.getpid()}.tmp",  # a killed process may have had our number
        f"models/.w.safetensors.{dead}.tmp",
        f"trajectory/.00000002.safetensors.{dead}.tmp",
    ]
    others = {".notes.tmp", f".{dead}.tmp", f".page.html.{os.getppid()}.tmp"}
    for name in [*left, *others]:
        (run / name).write_text("half")
    for name in (".00000004.tmp", ".00000002.old.tmp"):
        (run / "state" / name).mkdir()
        (run / "state" / name / "state.json").write_text("half")
    assert main(commands(run)["resume"]) == 0
    assert {path.name for path in run.rglob(".*")} == others and final(run) == final(finished)


def test_a_full_disk_leaves_whole_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path, [("a", b"old")])
    replace = files.replace_file

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".safetensors":
            raise OSError("No space left on device")
        replace(path, content)

    monkeypatch.setattr(files, "replace_file", full)
    with pytest.raises(OSError, match="No space"):
        write_models(tmp_path, [("a", b"new")])
    assert read_model(tmp_path, "a") == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files.json", "models"]


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
from fedsash.system.paths import beside
from fedsash.system import files

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
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert files.table(tmp_path / "a.json") == {"a": 1} and not files.is_ours(tmp_path / "a.json")
    with pytest.raises(RunError, match=r"a\.json is damaged: it has no checksum"):
        files.table(tmp_path / "a.json", sealed=True)


def test_an_error_names_the_file_and_not_the_one_beside_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'[^']*/nowhere/x\.png'"):
        files.replace_file(tmp_path / "nowhere" / "x.png", b"")


def test_json_has_a_line_for_each_item_and_one_for_a_list_of_plain_values() -> None:
    data = {"curve": [1, 2.5, math.nan], "rows": [[0, "[ 1 ]"], {"at": ()}], 3: {}}
    lines = [
        "{",
        '  "curve": [1, 2.5, null],',
        '  "rows": [',
        '    [0, "[ 1 ]"],',
        "    {",
        '      "at": []',
        "    }",
        "  ],",
        '  "3": {}',
        "}",
    ]
    assert files.json_of(data).decode().splitlines() == lines


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_read_back_as_it_was(value: Any) -> None:
    assert json.loads(files.json_of(value)) == value


def test_json_has_no_control_character_so_that_a_terminal_prints_it_as_it_is() -> None:
    text = files.json_of({"a\x7f": ["\x1b\u200b\n"]}).decode()
    assert json.loads(text) == {"a\x7f": ["\x1b\u200b\n"]} and terminal.visible(text) == text


def test_a_folder_whose_name_does_not_come_to_the_disk_is_an_error_that_names_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(opened: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match=rf"Input/output error: '{tmp_path}'"):
        make_folders(tmp_path / "new")


def test_a_folder_is_made_where_one_may_write_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable(Disk):
        """A folder can be changed, and not be opened."""

        def open(self, path: Path, flags: int, permissions: int = 0o666) -> int:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(host, "disk", Unreadable())
    make_folders(tmp_path / "new" / "newer")
    assert (tmp_path / "new" / "newer").is_dir()


def test_where_the_system_makes_no_folder_an_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OfTheSystem(Disk):
        """As in /proc: the folder is there, and nobody makes one in it."""

        def make_folder(self, path: Path) -> None:
            if tmp_path in path.parents:
                raise FileNotFoundError(2, "No such file or directory", str(path))
            super().make_folder(path)

    monkeypatch.setattr(host, "disk", OfTheSystem())
    with pytest.raises(FileNotFoundError, match=rf"'{tmp_path / 'new'}'"):
        make_folders(tmp_path / "new" / "newer")


def test_a_file_is_durable_with_the_names_in_its_folder(synced: list[Path], tmp_path: Path) -> None:
    write_models(tmp_path, [("b", b"b")])
    assert {tmp_path, tmp_path / "models"} <= {*synced}
    synced.clear()
    files.replace_file(tmp_path / "c", b"c")
    assert synced[-1] == tmp_path
