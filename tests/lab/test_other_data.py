"""A run whose data have changed since: whatever scores its models again, or combines it with others, says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tomli_w

from fedsash.lab.cli import main
from support.by_default import some

LINE = "was trained on other data than those that are there now"


def write_rows(file: Path, seed: int) -> None:
    """A table of noise: two features and a label."""
    noise = np.random.default_rng(seed)
    lines = ["a,b,y"]
    for a, b, y in zip(noise.normal(size=60), noise.normal(size=60), noise.integers(0, 2, 60), strict=True):
        lines.append(f"{a:.4f},{b:.4f},{y}")
    file.write_text("\n".join(lines))


def experiment(data: Path, seed: int = 0) -> dict[str, object]:
    return {
        "rounds": 3,
        "seed": seed,
        "data": {"name": "table", "path": str(data), "label": "y"},
        "partition": {"name": "iid", "clients": 3},
        "evaluation": {"every": 1, "last": 1},
        "trajectory": {"every": 1},
        "engine": {"kind": "sequential", "workers": 1},
    }


def train(data: Path, out: Path, seed: int = 0) -> None:
    file = out.with_suffix(".toml")
    file.write_text(tomli_w.dumps(experiment(data, seed)))
    assert main(["run", str(file), "--out", str(out)]) == 0


@pytest.mark.parametrize(
    "command",
    some(
        [["average", "--window", "2"], ["flatness", "--models", "model"], ["map", "--every", "1"]],
        ["average", "--window", "2"],
    ),
)
def test_a_study_of_a_run_whose_data_have_changed_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = tmp_path / "rows.csv", tmp_path / "run"
    write_rows(data, 0)
    train(data, run)
    write_rows(data, 1)
    capsys.readouterr()
    assert main([command[0], str(run), *command[1:]]) == 2
    assert LINE in capsys.readouterr().err
    write_rows(data, 0)
    assert main([command[0], str(run), *command[1:]]) == 0


def test_the_partition_of_a_run_whose_data_have_changed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = tmp_path / "rows.csv", tmp_path / "run"
    write_rows(data, 0)
    train(data, run)
    assert main(["partition", str(run)]) == 0
    write_rows(data, 1)
    assert main(["partition", str(run)]) == 2
    assert LINE in capsys.readouterr().err
    assert main(["partition", str(run), "--set", "partition.clients=2"]) == 0


def test_runs_on_other_data_are_no_seeds_of_one_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        data = tmp_path / f"rows{seed}.csv"
        write_rows(data, seed)
        train(data, tmp_path / f"run{seed}", seed)
    train(tmp_path / "rows0.csv", tmp_path / "again", seed=2)
    capsys.readouterr()
    assert main(["compare", *(str(tmp_path / name) for name in ("run0", "run1", "again"))]) == 0
    out, error = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines() if line.startswith("run")][1:] == [
        ["run0", "model", "2"],
        ["run1", "model", "1"],
    ]
    assert error == "fedsash: run run1: was trained on other data than run0\n"


def test_a_sweep_that_goes_on_with_other_data_is_told_when_it_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file, out = tmp_path / "rows.csv", tmp_path / "sweep.toml", str(tmp_path / "out")
    for seed in (0, 1):
        write_rows(data, seed)
        file.write_text(tomli_w.dumps({"base": experiment(data), "axes": {"seed": list(range(seed + 1))}}))
        assert main(["sweep", str(file), "--out", out]) == 0
    capsys.readouterr()
    assert main(["compare", out]) == 0
    assert capsys.readouterr().err == "fedsash: run seed=1: was trained on other data than seed=0\n"
