"""The script of `fedsash completion`, asked as bash asks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.cli.completion import SHELLS
from fedsash.methods import METHODS

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_fedsash
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    file = tmp_path_factory.mktemp("completion") / "fedsash"
    command = [sys.executable, "-m", "fedsash", "completion", "bash"]
    with file.open("w") as out:
        subprocess.run(command, stdout=out, check=True, timeout=100)
    return file


def offered(script: Path, *words: str) -> list[str]:
    """What is offered for the last of these words. No program can be found, so nothing but bash itself is at work."""
    command = [shutil.which("bash") or "bash", "--norc", "-c", ASK, "ask", str(script), "fedsash", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=script.parent, check=True, timeout=60, env={"PATH": ""}
    )
    return done.stdout.split()


def test_commands_options_and_names_are_completed(script: Path) -> None:
    assert offered(script, "re") == ["resume", "reproduce", "report"]
    assert {"--out", "--set", "--json", "--fork"} <= set(offered(script, "run", "--"))
    assert offered(script, "list", "methods", "") == list(METHODS)
    assert offered(script, "list", "methods", "fedpr") == ["fedprox"]
    assert {"lr", "batch", "epochs"} <= set(offered(script, "list", "local", ""))
    assert offered(script, "init", "--data", "imag") == ["images"]
    assert "ima-table-1" in offered(script, "reproduce", "ima-")


def test_options_that_a_command_gets_at_its_first_use_are_completed(script: Path) -> None:
    assert {"--models", "--points"} <= set(offered(script, "landscape", "--"))


def test_files_are_completed_where_files_belong(script: Path) -> None:
    (script.parent / "mine.toml").touch()
    assert offered(script, "run", "mi") == offered(script, "resume", "mi") == ["mine.toml"]


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_a_script_for_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "fedsash" in out and "scaffold" in out


def test_another_shell_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "dash"])
    assert "invalid choice: 'dash'" in capsys.readouterr().err
