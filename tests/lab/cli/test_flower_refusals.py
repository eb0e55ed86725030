"""What `fedsash flower` refuses before anything is started."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedsash.lab.cli import flower, main
from fedsash.lab.served import superlink
from support.places import ROOT

TIMED = ROOT / "examples" / "network" / "congestion.toml"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain.toml").write_text('data.name = "digits"\nsampling.count = 10\n')
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


def test_a_limit_without_an_asynchronous_scheduler(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("serve", plain, "--out", plain.parent / "out", "--clients", 10, "--superlink", "lab", "--limit", 2)
    assert "--limit = 2: needs an asynchronous scheduler: leave it out" in refused(capsys, *command)


@pytest.mark.parametrize(
    ("option", "value", "right"),
    [
        ("--deadline", 0, "--deadline = 0.0: must be positive, in seconds"),
        ("--roll-call", -1, "--roll-call = -1.0: must be positive, in seconds"),
        ("--minimum", 0, "--minimum = 0: must be at least 1"),
        ("--minimum", 11, "--minimum = 11: must be at most 10, the clients that a round asks"),
    ],
)
def test_options_are_refused_by_their_names(
    option: str, value: int, right: str, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("serve", plain, "--out", plain.parent / "out", "--clients", 20, "--superlink", "lab")
    assert right in refused(capsys, *command, option, value)


def test_a_deadline_of_simulated_rounds(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("serve", plain, "--out", plain.parent / "out", "--clients", 20, "--superlink", "lab")
    line = refused(capsys, *command, "--set", "scheduler={name='synchronous', deadline=5.0}")
    assert "scheduler.deadline = 5.0: is for simulated rounds; real ones wait as long as --deadline says" in line


def test_a_study_of_time_in_which_nobody_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "serve", TIMED, "--out", tmp_path / "out", "--clients", 2, "--superlink", "lab")
    assert "congestion.toml" in line and "network.learning = False: nobody trains" in line


def test_a_node_with_a_number_below_zero(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--number = -1: must be" in refused(capsys, "node", plain, "--number=-1", "--superlink", "127.0.0.1:1")


def test_a_node_on_a_device_that_is_not_there(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "node", plain, "--number=0", "--superlink", "127.0.0.1:1", "--device", "cuda:99")
    assert "device = 'cuda:99': not available here" in line


def test_a_node_whose_state_is_to_be_kept_in_a_file(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "node", plain, "--number=0", "--superlink", "127.0.0.1:1", "--state", plain)
    assert f"{plain} is a file, and must be a folder" in line


@pytest.mark.parametrize("test", [0.2, 0.0])
def test_a_node_says_which_of_its_samples_nobody_trains_on(
    test: float, plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "execve", lambda *command: None)
    plain.write_text(f'data = {{ name = "digits", test = {test} }}\n')
    main(["flower", "node", str(plain), "--number=0", "--superlink", "127.0.0.1:1"])
    line = (
        "of the client's samples 1,438 are for training; its 359 test samples are used with evaluation.client_test only"
    )
    assert capsys.readouterr().out == (f"{line}\n" if test else "")


@pytest.mark.full
def test_a_superlink_that_is_not_configured_is_one_line(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(plain.parent / "flwr"))
    command = ("serve", plain, "--out", plain.parent / "out", "--clients", 10, "--superlink", "nosuch")
    line = refused(capsys, *command)
    assert "SuperLink connection 'nosuch' not found" in line and "license" not in line and "\\n" not in line


SUBMITTED = json.dumps({"success": True, "run-id": "7"})
FAILED = json.dumps({"runs": [{"status": "finished:failed"}]})
DOWN = json.dumps({"success": False, "error-message": "Using SuperLink: lab\n ...\n\nConnection is unavailable."})


def flwr_answers(folder: Path, monkeypatch: pytest.MonkeyPatch, *listed: str) -> None:
    """Put a program in the place of `flwr`: it takes a run, and then answers `list` with each of `listed` in turn."""
    program, turns = folder / "flwr", folder / "turns"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\nturns = Path({str(turns)!r})\n"
        f"answer = {SUBMITTED!r}\nif sys.argv[1] == 'list':\n"
        f"    turn = turns.stat().st_size if turns.exists() else 0\n    turns.write_bytes(bytes(turn + 1))\n"
        f"    answer = {listed!r}[min(turn, {len(listed) - 1})]\nprint('Loading project configuration...', answer)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(superlink, "program", lambda name: str(folder / name))
    monkeypatch.setattr(flower, "LOOK", 0.0)


def test_a_run_whose_process_ends_without_a_word_names_the_log_that_says_why(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is at a SuperLink that can't install the app's dependencies: nothing of fedsash was started."""
    flwr_answers(plain.parent, monkeypatch, FAILED)
    given = ("serve", plain, "--out", plain.parent / "out", "--clients", "10", "--superlink", "lab")
    assert main(["flower", *map(str, given)]) == 2
    assert "`flwr log 7 lab --show` says why" in capsys.readouterr().err


def test_a_superlink_that_does_not_answer_is_told_once(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flwr_answers(plain.parent, monkeypatch, DOWN, DOWN, FAILED)
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
