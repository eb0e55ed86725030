"""The papers' runs on a machine that is lent, here for seconds: they stop in time, are packed, and go on."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from benchmarks import on_gpu

from support.places import ROOT

TASK = "wima-table-5: CIFAR-10 a=0 / all"
SMALLER = ["--scale", "tiny", "--set", "rounds=2500"]


def lent(folder: Path, out: str, seconds: float, *more: str) -> str:
    """What the program prints with so many seconds."""
    command = [sys.executable, "-m", "benchmarks.on_gpu", "--data", str(folder), "--out", str(folder / out)]
    command += ["--seconds", str(seconds), *SMALLER, *more, TASK]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.full
def test_a_run_that_does_not_fit_is_packed_and_goes_on_next_time(tmp_path: Path) -> None:
    names: list[str] = []
    for seconds in (30, 90, 270):  # a busy machine may need a minute before its first round
        began = time.monotonic()
        assert "goes on next time" in lent(tmp_path, "first", seconds)
        assert time.monotonic() - began < seconds + 15
        with tarfile.open(tmp_path / "first" / "part-0.tar.gz") as tar:
            names = tar.getnames()
        if any("/state/" in name for name in names):
            break
    assert any("/state/" in name for name in names)
    assert not any("/models/" in name for name in names)
    printed = lent(tmp_path, "second", 300, "--before", str(tmp_path / "first"))
    assert f"{TASK}: ended" in printed
    with tarfile.open(tmp_path / "second" / "part-0.tar.gz") as tar:
        assert tar.getnames() == []  # the tiny scale has other data than the paper, so there is no row


def test_packs_keep_to_their_limits_and_name_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_gpu, "MOST_FILES", 2)
    monkeypatch.setattr(on_gpu, "MOST_BYTES", 1000)
    monkeypatch.setattr(on_gpu, "MOST_IN_ALL", 1800)
    for number, size in enumerate((600, 900, 5000, 300)):
        run = tmp_path / "work" / "r" / "task" / "runs" / str(number)
        (run / "state").mkdir(parents=True)
        (run / "config.toml").write_text(f"rounds = {number + 1}\n")
        (run / "state" / "w").write_bytes(bytes(size - 11))
        (run / "models").mkdir()
        (run / "models" / "large").write_bytes(bytes(10_000))
    on_gpu.pack(tmp_path / "work", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["part-0.tar.gz", "part-1.tar.gz"]
    assert capsys.readouterr().out.count("not packed, it begins anew next time") == 1
    on_gpu.unpack(tmp_path / "out", tmp_path / "again")
    kept = sorted(path.name for path in (tmp_path / "again" / "r" / "task" / "runs").iterdir())
    assert kept == ["0", "1", "3"]


def test_a_task_is_a_reproduction_and_its_cells() -> None:
    task = on_gpu.Task.of("ima-table-2: FedAvg / 150; FedAvg / FMA")
    assert task == on_gpu.Task("ima-table-2", ("FedAvg / 150", "FedAvg / FMA"))
    assert on_gpu.Task.of(str(task)) == task


def test_a_row_is_printed_once_and_again_if_it_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r" / "task" / "rows" / "wima-table-5" / "1.json"
    file.parent.mkdir(parents=True)
    row = {"values": {"0": 58.0}, "settings": {}}
    cell = {"table": "wima-table-5", "row": "CIFAR-10 a=0", "column": "all", "cell": "", "printed": 59.53}
    file.write_text(json.dumps(cell | {"rows": [row]}))
    seen: dict[Path, float] = {}
    on_gpu.print_rows(tmp_path, seen)
    on_gpu.print_rows(tmp_path, seen)
    printed = capsys.readouterr().out
    assert printed.startswith("wima-table-5: CIFAR-10 a=0 / all: 58.0") and printed.count("(print: 59.53)") == 1
    seen[file] -= 1  # as if the file were older
    on_gpu.print_rows(tmp_path, seen)
    assert capsys.readouterr().out == printed
