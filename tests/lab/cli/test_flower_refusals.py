"""What `fedsash flower` refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedsash.lab.cli import main
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
    assert "--clients = 0: must be at least 1" in refused(capsys, "serve", plain, "--out", out, "--clients", 0)
    assert not out.exists()


def test_a_study_of_time_in_which_nobody_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "serve", TIMED, "--out", tmp_path / "out", "--clients", 2)
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
    command = ("serve", plain, "--out", plain.parent / "out", "--clients", 2, "--superlink", "nosuch")
    line = refused(capsys, *command)
    assert "SuperLink connection 'nosuch' not found" in line and "license" not in line and "\\n" not in line
