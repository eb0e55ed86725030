"""`fedsash reproduce`, from a reproduction to its tables and pictures, and what it says when it cannot."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.papers import names
from fedsash.lab.papers.figures import StudyFigure
from fedsash.lab.papers.reproduce import Order, reproduce, with_data, without_folders
from fedsash.lab.studies.flatness import FlatnessStudy
from support.reproduced import load, reproduction


def test_runs_whose_data_are_not_there_are_left_out_with_the_folder_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "fashion_mnist").mkdir()
    asked = load("ima-table-1").plan(only=["row=FMNIST #C=2", "row=FMNIST a=0.1", "row=PACS #C=2"])
    sweep, missing = with_data(asked, tmp_path)
    assert {run.labels["row"] for run in sweep.runs} == {"FMNIST #C=2", "FMNIST a=0.1"}
    assert len(sweep.runs) + len(missing) == len(asked.runs)
    assert f"pacs is not there: put it into {tmp_path / 'pacs'} (docs/how-to/datasets.md says how)" in missing.values()
    assert sweep.runs[0].experiment.data.path == str(tmp_path / "fashion_mnist")  # type: ignore[attr-defined]


def test_data_that_are_elsewhere_are_taken_from_there(tmp_path: Path) -> None:
    own = str(tmp_path / "mine")
    asked = load("ima-table-1").plan(only=["row=FMNIST #C=2"], overrides=[f"data.path={own}"])
    sweep, missing = with_data(asked, tmp_path)
    assert missing == {} and {run.experiment.data.path for run in sweep.runs} == {own}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "setting, in_a_row",
    [
        ("data.path=/home/me/data/mnist10k", "data.path=DIR/mnist10k"),
        ('data={name="mnist", path="/my data/mnist"}', 'data={name="mnist", path="DIR/mnist"}'),
        ("data={path='/home/me/mnist'}", "data={path='DIR/mnist'}"),
        ("data.path=mnist", "data.path=mnist"),
        ("model.path=a/b", "model.path=a/b"),
    ],
)
def test_the_command_in_a_row_names_no_folder_of_whoever_ran_it(setting: str, in_a_row: str) -> None:
    command = shlex.join(["fedsash", "reproduce", "ima-table-1", "--data", "/home/me/data", "--set", setting])
    assert without_folders(command) == shlex.join(["fedsash", "reproduce", "ima-table-1", "--set", in_a_row])


@pytest.mark.pictures
def test_a_study_looks_again_at_runs_that_have_grown(tmp_path: Path) -> None:
    flatness = StudyFigure("flatness", "t", study=FlatnessStudy(("model",), eigenvalues=1, samples=20))
    given = reproduction(figures=[flatness], axes={"seed": [0]}, tables=[])
    found: list[bytes] = []
    for rounds in (2, 4, 4):
        done = reproduce(Order(given, overrides=[f"rounds={rounds}"]), tmp_path, progress=False)
        assert done.missing == []
        found.append(done.pictures[0].read_bytes())
    assert found[0] != found[1] == found[2]
    assert len(list(tmp_path.glob("runs/*/analyses/*.json"))) == 2


def test_without_any_data_there_is_the_table_with_the_reason_in_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = reproduce(Order(load("wima-table-3"), data=tmp_path / "none"), out, progress=False, command="a command")
    table = json.loads((out / "tables" / "wima-table-3.json").read_text())
    assert table["rows"][1] == ["FedAvg", "here", "not run", "not run"]
    assert "landmarks is not there" in table["note"] and table["command"] == "a command"
    assert set(table) >= {"title", "note", "columns", "rows", "command"}
    assert "| FedAvg | paper | 58.17 | 63.05 |" in (out / "tables" / "wima-table-3.md").read_text()
    assert done.pictures == []


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["ima-tabel-1"], "did you mean ima-table-1?"),
        (["../ima-table-1"], "reproduction = '../ima-table-1'"),
        (["ima-table-1", "--scale", "huge"], "must be one of full, small, tiny"),
        (["ima-table-1", "--only", "row"], "must be AXIS=LABEL"),
        (["ima-table-1", "--only", "row=MNIST"], "axis row has no label MNIST"),
        (["ima-table-1", "--only", "rows=MNIST"], "there is no axis rows; did you mean row?"),
        (["ima-table-1", "--scale", "tiny", "--jobs", "0"], "jobs = 0"),
        (["ima-table-1", "--scale", "tiny", "--set", "rounds"], "--set rounds: must be KEY=VALUE"),
        (["ima-table-1", "--scale", "tiny", "--set", "local.lrr=1"], "local.lrr"),
    ],
)
def test_a_wrong_command_is_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_reproduction_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "reproductions"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in names()) and len(said.splitlines()) == len(names()) + 1
    assert main(["list", "reproductions", "ima-table-2"]) == 0
    said = capsys.readouterr().out
    assert "38 runs, 15,200 rounds asked" in said and "start: 150; 200; 250; 300; FMA" in said
    assert main(["list", "reproductions", "table"]) == 2


def test_a_table_from_end_to_end_and_again_without_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "wima-table-5", "--scale", "tiny", "--only", "seed=0", "--out", str(tmp_path)]
    assert main([*arguments, "--no-progress"]) == 0
    said = capsys.readouterr().out
    assert "not comparable with the paper's" in " ".join(said.split())
    table = json.loads((tmp_path / "tables" / "wima-table-5.json").read_text())
    assert [row[:2] for row in table["rows"]] == [["CIFAR-10 a=0", kind] for kind in ("paper", "here", "difference")]
    assert table["command"] == "fedsash reproduce wima-table-5 --scale tiny --only seed=0"
    metrics = next(tmp_path.glob("runs/*/metrics.jsonl"))
    before = metrics.stat().st_mtime_ns
    assert main([*arguments, "--data", "elsewhere", "--own-code", "--no-progress"]) == 0
    assert metrics.stat().st_mtime_ns == before
    again = json.loads((tmp_path / "tables" / "wima-table-5.json").read_text())["command"]
    assert again == f"{table['command']} --data elsewhere --own-code"


@pytest.mark.slow
def test_tables_are_there_before_the_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsash.lab.papers.reproduce._figures", stopped)
    with pytest.raises(KeyboardInterrupt):
        reproduce(Order(load("wima-table-5"), "tiny", only=["seed=0"]), tmp_path, progress=False)
    assert (tmp_path / "tables" / "wima-table-5.json").exists()


@pytest.mark.slow
def test_runs_with_other_settings_are_not_mixed_into_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "wima-table-5", "--scale", "tiny", "--out", str(tmp_path), "--no-progress"]
    assert main([*arguments, "--only", "seed=0", "--set", "rounds=2"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*arguments, "--only", "seed=1"]) == 2
    said = capsys.readouterr().err
    assert "holds a run of another experiment" in said and said.count("\n") == 1
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_setting_need_only_suit_the_runs_that_are_asked_for(tmp_path: Path) -> None:
    """FedAvg, which the table has as well, has no gamma."""
    chosen = [word for label in ("seed=0", "alpha=Dir 0.1", "method=FedMoSWA") for word in ("--only", label)]
    arguments = ["reproduce", "fedswa-table-3", "--scale", "tiny", "--out", str(tmp_path), "--no-progress", *chosen]
    assert main([*arguments, "--set", "rounds=2", "--set", "method.gamma=0.5"]) == 0
    table = json.loads((tmp_path / "tables" / "fedswa-table-3-cifar100.json").read_text())
    assert {row[0] for row in table["rows"]} == {"FedMoSWA"} and "method.gamma 0.5 (full scale: 0.2)" in table["note"]


@pytest.mark.slow
def test_a_setting_of_ones_own_is_said_below_the_table(tmp_path: Path) -> None:
    settings = ["rounds=3", "averages.wima.size=2"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    arguments = ["reproduce", "wima-table-5", "--scale", "tiny", "--only", "seed=0", *overrides]
    assert main([*arguments, "--out", str(tmp_path), "--no-progress"]) == 0
    table = json.loads((tmp_path / "tables" / "wima-table-5.json").read_text())
    assert "; rounds 3 (full scale: " in table["note"] and "averages.wima.size 2 (full scale: 100)" in table["note"]
    assert table["command"] == f"fedsash {' '.join(arguments)}"
    assert json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text())["rounds"] == 3


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.parametrize(
    "name, pictures, analyses",
    [
        ("ima-table-1", 0, 0),
        ("ima-table-2", 4, 2),
        ("fedswa-table-3", 2, 2 * 4),  # claims need the second seed, too, which no figure shows
        ("wima-table-2", 1, 0),
        ("wima-figure-2", 1, 0),
        ("wima-figure-3", 1, 0),
        ("ima-figure-1", 6, 2 + 6 + 6 + 3),
        ("ima-figure-2", 4, 2 + 2),
        ("ima-figure-6", 3, 0),
        ("fedwindow-table-1", 0, 0),
        ("fedwindow-figure-3", 2, 0),
    ],
)
def test_every_kind_of_table_and_figure_from_end_to_end(
    name: str, pictures: int, analyses: int, tmp_path: Path
) -> None:
    done = reproduce(Order(load(name), "tiny"), tmp_path, progress=False)
    assert done.missing == [] and len(done.pictures) == pictures
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in done.pictures)
    assert len(list(tmp_path.glob("runs/*/analyses/*.json"))) == analyses, "a model is looked at once for all figures"
    for table in (table for table in done.tables if "numbers" in table):
        assert not table["missing"] and any(row[1] == "here" for row in table["rows"])
