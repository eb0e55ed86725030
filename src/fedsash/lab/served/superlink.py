"""Flower's own programs: what is asked of a SuperLink, and where a program is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...settings.errors import LibraryError, RunError, library, one_line
from ...system.lock import InUseError, check_free

STOP = 60.0
"""How long a stopped server's process is waited for, in seconds."""


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink by its `name` in `~/.flwr/config.toml`. It is asked by Flower's command `flwr`."""

    name: str

    def submit(self, folder: Path) -> int:
        """Submit the app in a folder; returns the number of Flower's run. Raises `RunError` if it is refused."""
        answer = _flwr("run", str(folder), self.name)
        if not answer.get("success"):
            raise RunError(f"flwr run was refused: {_why(answer)}")
        return int(answer["run-id"])

    def status(self, number: int) -> tuple[str, str]:
        """The status of a run of Flower, and why there is none if the SuperLink does not say it."""
        answer = _flwr("list", self.name, "--run-id", str(number))
        runs = answer.get("runs") or [{}]
        why = "" if runs[0] else str(answer.get("error-message") or answer).strip().split("\n\n")[-1]
        return str(runs[0].get("status", "")), " ".join(why.split())

    def stop(self, number: int, out: Path) -> str:
        """Stop a run of Flower, and wait until its process has let go of the folder `out`; returns a line about it."""
        answer = _flwr("stop", str(number), self.name)
        until = time.monotonic() + STOP
        if not answer.get("success"):
            return f"flwr stop was refused: {_why(answer)}"
        while True:
            try:
                check_free(out)
                return f"run {number} of Flower has been stopped"
            except InUseError as error:
                if time.monotonic() > until:
                    return f"run {number} of Flower has been stopped, but {one_line(error)}"
                time.sleep(0.2)


def _flwr(*arguments: str) -> dict[str, Any]:
    """What a command of Flower answers. A Ctrl-C does not reach it."""
    command = [program("flwr"), *arguments, "--format", "json"]
    how: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "start_new_session": True}
    done = subprocess.run(command, env=environment(command[0]), **how)
    try:
        return dict(json.loads(done.stdout[done.stdout.index("{") :]))
    except ValueError:
        return {"success": False, "error-message": (done.stderr or done.stdout).strip()[-500:]}


def _why(answer: dict[str, Any]) -> str:
    """Why a command of Flower was refused, in one line."""
    return " ".join(str(answer.get("error-message") or answer).split())


def environment(command: str) -> dict[str, str]:
    """The environment of one of Flower's programs, which finds the others by their names beside it."""
    return os.environ | {"PATH": os.pathsep.join([str(Path(command).parent), os.environ.get("PATH", os.defpath)])}


def program(name: str) -> str:
    """The path of one of Flower's programs: beside this Python, or where the shell finds it."""
    with library("Flower", "fedsash flower", "fedsash[flower]"):
        import flwr  # noqa: F401
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise LibraryError(f'the command {name} is missing: pip install "fedsash[flower]"')
    return found
