"""The exit codes of commands that train, and the lines that explain them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.cli.common import OK, STUCK, WRONG, report_failures
from fedsash.runs.records import Records
from fedsash.vector.saved import saved_rounds
from support.by_default import some
from support.experiments import file_with
from support.observing import failing

ENGINE = '[engine]\nkind = "sequential"\nworkers = 1\ncompile = false\nmemory_format = "contiguous"\nthreads = 1\n'
NETWORK = "[network]\nlink = { rate = 2000.0 }\n"
EXPLODING = "rounds = 3\n[local]\nlr = 100_000_000.0\n"


@pytest.mark.parametrize("command", some(["run", "network"], "run"))
def test_a_stuck_run_says_so_and_has_a_code_of_its_own(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(EXPLODING + ENGINE + (NETWORK if command == "network" else ""), tmp_path)
    out = tmp_path / "out"
    for words in ([command, str(file), "--out", str(out)], ["resume", str(out), "--rounds", "4"]):
        assert main([*words, "--no-progress"]) == STUCK
        said = " ".join(capsys.readouterr().out.split())
        assert "stuck since round 1: every upload was not finite" in said
        assert "1e+06; lower local.lr, or scale features and labels" in said


def test_a_run_that_has_failed_is_saved_and_the_line_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = file_with("rounds = 3\nevaluation.every = 1\n" + ENGINE, tmp_path), tmp_path / "out"
    with monkeypatch.context() as patched:
        failing(Records, "append", 2, "before", patched, OSError("No space left on device"))
        assert main(["run", str(file), "--out", str(out), "--no-progress"]) == WRONG
    error = capsys.readouterr().err
    assert error == f"fedsash: No space left on device; go on with: fedsash resume {out}\n"
    assert saved_rounds(out / "state") == [2]
    assert main(["resume", str(out), "--no-progress"]) == OK
    assert [row["round"] for row in Records(out).load().rows()] == [1, 2, 3]


def test_a_sweep_names_the_runs_that_failed_and_the_signal_that_stopped_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_failures({}, 0) == OK and not capsys.readouterr().err
    assert report_failures({"a": "no data"}, 0) == WRONG
    assert capsys.readouterr().err == "fedsash: a failed: no data\n"
    assert report_failures({"a": "no data"}, 15) == 143
    assert capsys.readouterr().err == "stopped; the same command continues\n"


def test_the_help_names_all_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out.split("exit codes:")[1].split()
    assert {"0", "1", "2", "3", "129,", "130,", "143"} <= set(told)
