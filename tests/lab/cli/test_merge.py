"""`fedsash merge`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedsash.lab import cli
from fedsash.lab.cli import main


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs"
    folder.mkdir()
    for step in (500, 1000):
        save_file({"w": torch.full((3,), float(step))}, folder / f"model-{step}.safetensors")
    return folder


def test_merge_writes_the_mean_and_prints_the_order(
    outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the libraries of the core alone."""
    monkeypatch.setattr(cli, "LIBRARIES", ("no_such_library",))
    mean = tmp_path / "mean.safetensors"
    assert main(["merge", str(outputs), "--out", str(mean)]) == 0
    assert load_file(mean)["w"].tolist() == [750.0] * 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["500", "0.500000"], ["1000", "0.500000"]]


def test_merge_answers_in_json_and_takes_weights_from_a_file(
    outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights.txt"
    weights.write_text("1, 3\n")
    command = ["merge", str(outputs), "--out", str(tmp_path / "mean"), "--weights", str(weights), "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["share"] for row in answer["checkpoints"]] == [0.25, 0.75]
    assert load_file(tmp_path / "mean" / "model-1000.safetensors")["w"].tolist() == [875.0] * 3


def test_merge_of_a_run_names_average(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").touch()
    assert main(["merge", str(tmp_path), "--out", str(tmp_path / "mean")]) == 2
    assert f"fedsash average {tmp_path}" in capsys.readouterr().err


def test_average_of_a_folder_of_checkpoints_names_merge(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["average", str(outputs)]) == 2
    assert f"fedsash merge {outputs}" in capsys.readouterr().err


@pytest.mark.full
def test_merge_imports_no_library_beside_the_cores(outputs: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from fedsash.lab import cli; sys.modules.update(dict.fromkeys(cli.LIBRARIES)); "
        "cli.check_installed = lambda: 1 / 0; sys.exit(cli.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "merge", str(outputs), "--out", str(tmp_path / "mean")]
    subprocess.run(command, check=True)
    assert (tmp_path / "mean" / "merge.json").exists()


def test_merge_takes_the_best_and_bemas_initial_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    for step, loss in ((1, 0.3), (2, 0.1), (3, 0.2)):
        save_file({"w": torch.full((3,), float(step))}, folder / f"step={step}-loss={loss}.safetensors")
    best = tmp_path / "best.safetensors"
    assert main(["merge", str(folder), "--out", str(best), "--best", "2", "--by", "loss"]) == 0
    assert load_file(best)["w"].tolist() == [2.5] * 3
    assert "chosen by loss, the lower the better: 0.1, 0.2" in capsys.readouterr().out
    initial = tmp_path / "initial.safetensors"
    save_file({"w": torch.zeros(3)}, initial)
    bema = tmp_path / "bema.safetensors"
    assert main(["merge", str(folder), "--out", str(bema), "--bema", "--initial", str(initial)]) == 0
    assert load_file(bema)["w"].min() > 1
    assert str(initial) in capsys.readouterr().out
