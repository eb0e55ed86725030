"""The script of `fedsash completion`, asked as bash asks it."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fedsash.averages import AVERAGES
from fedsash.lab.cli import main
from fedsash.lab.cli.completion import SHELLS
from fedsash.methods import METHODS

ASK = """
source "$1"; shift
for line; do
    COMP_WORDS=(fedsash $line); [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _shtab_fedsash
    printf '%s\\n' "${COMPREPLY[@]}"; printf '\\0'
done
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    file = tmp_path_factory.mktemp("completion") / "fedsash"
    with file.open("w") as out, redirect_stdout(out):
        assert main(["completion", "bash"]) == 0
    return file


def offered(script: Path, *lines: str) -> list[list[str]]:
    """What is offered for the last word of each line. No program can be found, so only bash itself is at work."""
    command = [shutil.which("bash") or "bash", "--norc", "-c", ASK, "ask", str(script), *lines]
    done = subprocess.run(command, capture_output=True, text=True, cwd=script.parent, check=True, env={"PATH": ""})
    return [answer.split() for answer in done.stdout.split("\0")[:-1]]


def test_commands_options_and_names_are_completed(script: Path) -> None:
    (script.parent / "mine.toml").touch()
    answers = {
        "re": ["resume", "reproduce", "report"],
        "list methods ": list(METHODS),
        "list methods fedpr": ["fedprox"],
        "list averages ": list(AVERAGES),  # a registry and a table have this name
        "init --data imag": ["images"],
        "run mi": ["mine.toml"],  # files are completed where files belong
        "resume mi": ["mine.toml"],
        "run --out mi": ["mine.toml"],
        "report --figures mi": ["mine.toml"],
        "reproduce --data mi": ["mine.toml"],
    }
    assert offered(script, *answers) == [*answers.values()]
    options, keys, names, later = map(set, offered(script, "run --", "list local ", "reproduce ima-", "landscape --"))
    assert {"--out", "--set", "--json", "--fork"} <= options
    assert {"lr", "batch", "epochs"} <= keys
    assert "ima-table-1" in names
    assert {"--models", "--points"} <= later, "those that a command gets at its first use"


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_a_script_for_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "fedsash" in out and "scaffold" in out


def test_another_shell_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "dash"])
    assert "invalid choice: 'dash'" in capsys.readouterr().err
