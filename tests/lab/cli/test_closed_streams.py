"""Commands without standard output or errors, as in a service, and without an installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedsash
from fedsash import run
from fedsash.lab.cli import main
from support.by_default import some
from support.worlds import federation

EXPERIMENT = """
rounds = 2
data.name = "digits"
partition = { name = "iid", clients = 4 }
model = { name = "mlp", hidden = [4] }
engine = { kind = "sequential", workers = 1 }
"""


def without(closed: str, command: str, folder: Path) -> int:
    """The exit code of a command whose standard streams with these numbers are closed."""
    redirections = " ".join(f"{number}>&-" for number in closed)
    program = f"{sys.executable} -m fedsash {command} {redirections}"
    kept = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run(["sh", "-c", program], cwd=folder, check=False, **kept).returncode  # type: ignore[call-overload, no-any-return]


@pytest.mark.full
@pytest.mark.parametrize("closed", ["1", "2", "12"])
def test_a_run_without_standard_streams_trains_and_ends_as_ever(closed: str, tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    assert without(closed, "run e.toml --out a", tmp_path) == 0
    assert main(["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "b"), "--no-progress"]) == 0
    for name in ("models/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


COMMANDS = [pytest.param("--version", 0), pytest.param("list methods", 0), pytest.param("run no.toml", 2)]


@pytest.mark.parametrize(("command", "code"), some(COMMANDS, "--version"))
@pytest.mark.parametrize("closed", some(["1", "2", "12", "0<&- 12"], "12"))
def test_other_commands_have_their_exit_code_without_standard_streams(
    command: str, code: int, closed: str, tmp_path: Path
) -> None:
    first, _, numbers = closed.rpartition(" ")
    assert without(numbers, f"{command} {first}", tmp_path) == code


@pytest.mark.parametrize("progress", [False, True])
def test_a_run_in_python_needs_no_standard_output(progress: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert run(federation(), 2, progress=progress).state.round == 2


def test_a_source_tree_that_is_not_installed_says_so_and_works(tmp_path: Path) -> None:
    """A copy of the interpreter's path without the folder in which the installed package is described."""
    tree = Path(fedsash.__file__).parents[1]
    program = f"""
import sys
from importlib import metadata
found = metadata.version
def version(name):
    if name == "fedsash":
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
sys.path.insert(0, {str(tree)!r})
import fedsash
from fedsash.lab.cli import main
assert fedsash.__version__ == "not installed"
try:
    main(["--version"])
except SystemExit as end:
    assert end.code == 0
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stdout) == (0, "fedsash not installed\n"), done.stderr
