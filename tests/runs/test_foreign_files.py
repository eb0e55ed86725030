"""No file that a run did not write is replaced by one, and an empty name is no folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.runs import resume, run
from fedsash.settings.errors import FedsashError, RunError
from support.by_default import full
from support.worlds import federation

EXPERIMENT = """
rounds = 2
data.name = "digits"
partition = { name = "iid", clients = 5 }
model = { name = "mlp", hidden = [4] }
engine = { kind = "sequential", workers = 1 }
"""
MINE = ("config.toml", "summary.json", "models/model.safetensors", "models/other.bin", "curves.png", "goal.json")


@pytest.mark.parametrize("name", MINE)
def test_a_run_into_a_folder_with_a_file_of_ones_own_is_refused_and_changes_nothing(name: str, tmp_path: Path) -> None:
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(RunError, match=rf"out holds {name}, which a run would replace: choose another folder$"):
        run(federation(), 1, out=tmp_path / "out", progress=False)
    assert file.read_text() == "mine"
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name != "lock"] == [file]


def test_an_experiment_file_called_config_is_not_replaced_by_its_own_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(EXPERIMENT)
    assert main(["run", str(tmp_path / "config.toml"), "--out", str(tmp_path), "--no-progress"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "holds config.toml, which a run would replace" in error
    assert (tmp_path / "config.toml").read_text() == EXPERIMENT


@pytest.mark.parametrize(
    "content", [full('{"files": ["a.txt"]}'), '{"files": {"exp.toml": [[1, 2]]}}', full('["a.txt"]'), "{"]
)
def test_an_index_of_another_program_is_neither_replaced_nor_in_the_way(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name of ours, and lies beside an experiment, above it, or where a run shall go."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    indices = [Path("files.json"), Path("../files.json")]
    for index in indices:
        index.write_text(content)
    Path("exp.toml").write_text(EXPERIMENT)
    assert main(["run", "exp.toml", "--out", "out", "--no-progress"]) == 0
    assert main(["resume", "out", "--rounds", "3", "--no-progress"]) == 0
    assert main(["report", "out", "--out", "page.html"]) == 0
    assert main(["partition", "exp.toml"]) == 0
    assert main(["run", "exp.toml", "--out", ".", "--no-progress"]) == 2
    assert [index.read_text() for index in indices] == [content, content]


def test_files_of_other_names_are_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run(federation(), 1, out=tmp_path, progress=False)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_run_that_was_killed_as_it_began_is_begun_anew_in_its_folder(tmp_path: Path) -> None:
    run(federation(), 1, out=tmp_path / "whole", progress=False)
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("goal.json", "engine.json", "partition.json", "config.toml"):  # in the order in which they are written
        shutil.copy(tmp_path / "whole" / name, begun)
        shutil.copytree(begun, tmp_path / name)
        run(federation(), 1, out=tmp_path / name, progress=False)
        assert (tmp_path / name / "summary.json").exists()


def test_a_goal_that_no_run_has_written_does_not_say_that_the_folder_is_a_runs(tmp_path: Path) -> None:
    (tmp_path / "goal.json").write_text('{"name": "accuracy"}')
    (tmp_path / "config.toml").write_text("mine")
    with pytest.raises(RunError, match=r"holds config\.toml, goal\.json, which a run would replace"):
        run(federation(), 1, out=tmp_path, progress=False)
    assert (tmp_path / "config.toml").read_text() == "mine"


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_a_run_that_has_lost_its_metrics_is_not_begun_anew_over_its_states(state: str, tmp_path: Path) -> None:
    run(federation(), 1, out=tmp_path / "r", progress=False)
    (tmp_path / "r" / "metrics.jsonl").unlink()
    if state == "stopped":
        (tmp_path / "r" / "summary.json").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="holds a run already"):
        run(federation(), 1, out=tmp_path / "r", progress=False)
    with pytest.raises(RunError, match=r"metrics\.jsonl is missing: put the right one back, or fork"):
        resume(federation(), 2, tmp_path / "r", progress=False)
    assert before == {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}


COMMANDS = {
    "run": ["run", "e.toml", "--out", ""],
    "network": ["network", "e.toml", "--out", ""],
    "sweep": ["sweep", "e.toml", "--out", ""],
    "reproduce": ["reproduce", "wima-figure-3", "--out", ""],
    "report": ["report", "runs/a", "--out", ""],
    "figures": ["report", "runs/a", "--figures", ""],
    "partition": ["partition", "e.toml", "--out", ""],
    "serve": ["flower", "serve", "e.toml", "--clients", "2", "--superlink", "s", "--out", ""],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_name_is_no_place(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(COMMANDS[name])
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1
    assert 'it is empty; "." is the current folder' in error


def test_an_empty_name_is_no_folder_in_python() -> None:
    with pytest.raises(FedsashError, match=r"^out = '': must name a folder"):
        run(federation(), 1, out="", progress=False)
