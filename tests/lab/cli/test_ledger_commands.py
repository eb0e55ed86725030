"""`fedsash reproduce --cell`, `--todo` and `--merge`: one number is run, its row is merged, and the rest is listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from support.forms import write_cifar10


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


SMALLER = {
    "rounds": "2",
    "model": '{name="mlp"}',
    "partition": '{name="iid", clients=2}',
    "sampling.count": "2",
    "evaluation.every": "1",
    "evaluation.last": "1",
}


def test_one_cell_is_run_merged_and_no_longer_the_papers_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cifar10(tmp_path / "elsewhere" / "data" / "cifar10")
    command = ["reproduce", "wima-table-5", "--scale", "small", "--cell", "CIFAR-10 alpha=0 / all", "--out", "out"]
    command += ["--only", "seed=0"]
    for key, value in SMALLER.items():
        command += ["--set", f"{key}={value}"]
    assert main([*command, "--data", "elsewhere/data", "--no-progress"]) == 0
    assert "1 of the paper's numbers, for a ledger: fedsash reproduce --merge out/rows" in capsys.readouterr().out
    assert not (tmp_path / "out" / "pictures").exists()
    assert main(["reproduce", "--merge", "out/rows"]) == 0
    said = capsys.readouterr().out
    assert "ours: rounds = 2 (print: 10000)" in said
    assert "1 rows taken into results" in said
    (file,) = (tmp_path / "results").rglob("*.json")
    (row,) = json.loads(file.read_text())["rows"]
    assert sorted(row["values"]) == ["0"]
    assert row["source"].startswith("fedsash reproduce wima-table-5") and "elsewhere" not in row["source"]


def test_the_tiny_scale_has_no_number_for_a_ledger_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "wima-table-5", "--scale", "tiny", "--only", "seed=0", "--out", "out", "--no-progress"]
    assert main([*command, "--set", "rounds=4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == 'no number for a ledger: the data are "digits", and the paper\'s "cifar10", "cifar100"'
    assert '  - data.name "digits" (full scale: "cifar10")' in lines
    assert not (tmp_path / "out" / "rows").exists()
    (claim,) = [line for line in lines if line.startswith("WiMA W46")]
    assert "Here: not decided: above 0? " in claim and "1 of the 3 seeds that a verdict needs" in claim


def test_what_is_left_is_listed_with_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "wima-table-5", "--todo", "--data", "nowhere", "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)
    assert sum(task["numbers"] for task in tasks) == 12
    assert all(task["missing"].endswith("is not there") for task in tasks)
    first = tasks[0]
    assert first["reproduction"] == "wima-table-5" and first["hours"] > 10 and first["gpu_minutes"] > 1


def test_an_unknown_cell_or_folder_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "wima-table-5", "--cell", "CIFAR-10 a=0 / al"]) == 2
    assert capsys.readouterr().err.startswith("fedsash: --cell = 'CIFAR-10 a=0 / al': did you mean CIFAR-10 a=0 / all")
    assert main(["reproduce", "--merge", "nowhere"]) == 2
    assert "must be a folder with rows" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert "must be a table or figure" in capsys.readouterr().err


def test_a_cell_whose_runs_are_left_out_by_only_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "wima-table-5", "--cell", "CIFAR-10 a=0 / all", "--only", "data=CIFAR-100 a=0"]
    assert main(command) == 2
    assert "none of its runs is asked for; at scale full these are: " in capsys.readouterr().err
