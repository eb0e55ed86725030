"""Parts of a sweep, as the tasks of an array job train them, and the runs that are left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError
from fedsash.lab.report.collect import collect
from fedsash.lab.sweeps import index
from fedsash.lab.sweeps.axes import PlannedRun, Sweep
from fedsash.lab.sweeps.machines import Here
from support.in_thread import in_process
from support.sweeps import BASE, sweep, write

LABELS = {"seed": [0, 1, 2], "local.lr": [0.1, 0.2]}


@given(count=st.integers(1, 60), parts=st.integers(1, 60))
def test_the_parts_of_a_sweep_are_its_runs_in_their_order_each_once(count: int, parts: int) -> None:
    runs = [PlannedRun(str(number), {}, None) for number in range(count)]  # type: ignore[arg-type]
    whole = Sweep("", {}, runs)
    names: list[str] = []
    for number in range(1, parts + 1):
        try:
            part = whole.part(number, parts)
        except ConfigError:
            assert parts > count
            continue
        own = [run.name for run in part.runs]
        assert sorted([*own, *part.others], key=int) == [run.name for run in runs]
        names += own
    assert names == [run.name for run in runs]


def test_a_choice_of_labels_names_the_other_runs() -> None:
    chosen = sweep(LABELS, ("lr=0.1",))
    assert chosen.others == ("seed=0,lr=0.2", "seed=1,lr=0.2", "seed=2,lr=0.2")
    assert sweep(LABELS).others == ()


def test_compare_says_how_many_runs_have_not_begun(tmp_path: Path) -> None:
    whole = sweep(LABELS)
    index.write(tmp_path, whole.part(1, 3), {})
    index.write(tmp_path, whole.part(3, 3), {})
    assert index.read(tmp_path)["others"] == ["seed=1,lr=0.1", "seed=1,lr=0.2"]
    (note,) = collect([tmp_path]).notes
    assert note.startswith("6 of 6 runs have not begun: seed=0,lr=0.1, ")
    index.write(tmp_path, whole, {"seed=2,lr=0.2": "no reason"})
    assert index.read(tmp_path)["others"] == []
    assert collect([tmp_path]).notes[0].startswith("5 of 6 runs have not begun")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0/3", "'0/3' must be I/N, from 1/N to N/N, such as 17/24"),
        ("4/3", "'4/3' must be I/N"),
        ("17", "'17' must be I/N"),
    ],
)
def test_a_part_that_can_not_be_is_refused(
    text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write({"base": BASE, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml")
    with pytest.raises(SystemExit):
        main(["sweep", str(file), "--part", text])
    assert line in capsys.readouterr().err
    assert main(["sweep", str(file), "--plan", "--part", "1/3"]) == 2
    assert "--part 1/3: has no run, as there are 2: take at most 2 parts" in capsys.readouterr().err
    assert main(["sweep", str(file), "--plan", "--part", "3/3", "--json"]) == 0
    assert [segment["runs"] for segment in json.loads(capsys.readouterr().out)] == [["seed=1"]]


def test_a_task_of_slurm_that_sees_more_cores_than_it_has_keeps_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.lab.sweeps.machines.cores", lambda: list(range(64)))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    machine = Here.__new__(Here)
    machine._cores = list(range(64))
    machine.slots = range(4)
    for most, slots, count in ((4, [2], 0), (8, [2], 2), (8, [0, 1, 2, 3], 8), (64, [2], 16)):
        machine._most_cores = most
        assert len(machine.cores(slots)) == count


@pytest.mark.full
def test_a_sweep_tells_the_warnings_of_its_runs_once_each_and_keeps_them_in_its_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = BASE | {"task": {"name": "regression"}, "rounds": 1, "local": {"lr": 0.5, "batch": 20}}
    file = write({"base": base, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml")
    with in_process():
        assert main(["sweep", str(file), "--out", str(tmp_path / "s"), "--jobs", "1", "--no-progress"]) == 0
    (line,) = [line for line in caplog.messages if "may make the model diverge" in line]
    assert line.startswith("runs/seed=0: labels of ")
    assert (tmp_path / "s" / "logs" / "0.txt").read_text().count("may make the model diverge") == 2
