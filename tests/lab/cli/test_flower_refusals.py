"""What `fedsash flower` refuses before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.lab.cli import flower, main
from support.places import ROOT

TIMED = ROOT / "examples" / "network" / "congestion.toml"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain.toml").write_text('[data]\nname = "digits"\n')
    return tmp_path / "plain.toml"


def refused(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert main(["flower", *map(str, command)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_a_number_of_clients_that_can_not_be(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = plain.parent / "out"
    line = refused(capsys, "serve", plain, "--out", out, "--clients", 0, "--superlink", "lab")
    assert "--clients = 0: must be at least 1" in line
    assert not out.exists()


def test_a_round_that_asks_more_clients_than_the_nodes_hold(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "serve", plain, "--out", plain.parent / "out", "--clients", 2, "--superlink", "lab")
    assert "sampling.count = 10: must be at most the number of clients, 2; all of them are fraction = 1.0" in line


def test_a_study_of_time_in_which_nobody_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "serve", TIMED, "--out", tmp_path / "out", "--clients", 2, "--superlink", "lab")
    assert "congestion.toml" in line and "network.learning = False: nobody trains" in line


def test_a_node_with_a_number_below_zero(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--number = -1: must be" in refused(capsys, "node", plain, "--number=-1", "--superlink", "127.0.0.1:1")


def test_a_node_on_a_device_that_is_not_there(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "node", plain, "--number=0", "--superlink", "127.0.0.1:1", "--device", "cuda:99")
    assert "device = 'cuda:99': not available here" in line


def test_a_superlink_that_is_not_configured_is_one_line(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(plain.parent / "flwr"))
    command = ("serve", plain, "--out", plain.parent / "out", "--clients", 10, "--superlink", "nosuch")
    line = refused(capsys, *command)
    assert "SuperLink connection 'nosuch' not found" in line and "license" not in line and "\\n" not in line


def test_a_run_whose_process_ends_without_a_word_names_the_log_that_says_why(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is at a SuperLink that can't install the app's dependencies: nothing of fedsash was started."""

    def answer(*arguments: str) -> dict[str, Any]:
        return {"success": True, "run-id": "7", "runs": [{"status": "finished:failed"}]}

    monkeypatch.setattr(flower, "_flwr", answer)
    monkeypatch.setattr(flower, "LOOK", 0.0)
    given = ("serve", plain, "--out", plain.parent / "out", "--clients", "10", "--superlink", "lab")
    assert main(["flower", *map(str, given)]) == 2
    assert "`flwr log 7 lab --show` says why" in capsys.readouterr().err


def test_a_superlink_that_does_not_answer_is_told_once(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    down = {"success": False, "error-message": "Using SuperLink: lab\n Displaying ...\n\nConnection is unavailable."}
    answers = iter([{"success": True, "run-id": "7"}, down, down, {"runs": [{"status": "finished:failed"}]}])
    monkeypatch.setattr(flower, "_flwr", lambda *arguments: next(answers))
    monkeypatch.setattr(flower, "LOOK", 0.0)
    given = ("serve", plain, "--out", plain.parent / "out", "--clients", "10", "--superlink", "lab")
    assert main(["flower", *map(str, given)]) == 2
    said = "".join(capsys.readouterr())
    assert said.count("no answer from the SuperLink, still waiting: Connection is unavailable.") == 1


def test_a_superlink_must_be_named(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flower's own default is a simulation on this machine, which has none of the nodes."""
    with pytest.raises(SystemExit) as ended:
        main(["flower", "serve", str(plain), "--clients", "10"])
    assert ended.value.code == 2 and "--superlink" in capsys.readouterr().err


def test_options_that_no_shell_takes_are_refused(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "node", plain, "--number", 0, "--superlink", "127.0.0.1:1", "--supernode='")
    assert "--supernode" in line and "must be options for a shell: No closing quotation" in line
