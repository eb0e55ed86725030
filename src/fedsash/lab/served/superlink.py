"""Flower's own programs: commands to a SuperLink, and the path of a program."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...settings.errors import LibraryError, RunError, library, one_line
from ...system.lock import InUseError, check_free

PROBE = 5.0
"""How long a node waits for the SuperLink's first answer, in seconds."""
STRANGER = re.compile(r"error '(?:404|405|501)\b.*?' for url '\w+://([^/']+)/")
"""What Flower says of a server that does not know the requests to a SuperLink; its address."""
STOP = 60.0
"""How long a stopped server's process is waited for, in seconds."""


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink by its `name` in `~/.flwr/config.toml`. Flower's command `flwr` talks to it."""

    name: str

    def submit(self, folder: Path) -> int:
        """Submit the app in a folder; returns the number of Flower's run. Raises `RunError` if it is refused."""
        answer = _flwr("run", str(folder), self.name)
        if not answer.get("success"):
            raise RunError(f"flwr run was refused: {_why(answer)}")
        return int(answer["run-id"])

    def status(self, number: int) -> tuple[str, str]:
        """The status of a run of Flower, and an empty text; without one, an empty status and the reason."""
        answer = _flwr("list", self.name, "--run-id", str(number))
        runs = answer.get("runs")
        if runs and runs[0]:
            return str(runs[0].get("status", "")), ""
        message = str(answer.get("error-message") or answer)
        reason = message.strip().split("\n\n")[-1]
        return "", " ".join(reason.split())

    def stop(self, number: int, out: Path) -> str:
        """Stop a run of Flower, and wait until its process has let go of the folder `out`; returns a line about it."""
        answer = _flwr("stop", str(number), self.name)
        deadline = time.monotonic() + STOP
        if not answer.get("success"):
            return f"flwr stop was refused: {_why(answer)}"
        while True:
            try:
                check_free(out)
                return f"run {number} of Flower has been stopped"
            except InUseError as error:
                if time.monotonic() > deadline:
                    return f"run {number} of Flower has been stopped, but {one_line(error)}"
                time.sleep(0.2)


def _flwr(*arguments: str) -> dict[str, Any]:
    """The answer of Flower's command `flwr`. It has a session of its own, so that a Ctrl-C does not reach it."""
    flwr = program("flwr")
    command = [flwr, *arguments, "--format", "json"]
    done = subprocess.run(
        command, env=environment(flwr), capture_output=True, text=True, check=False, start_new_session=True
    )
    try:
        begin = done.stdout.index("{")  # Flower may write warnings before it
        return dict(json.loads(done.stdout[begin:]))
    except ValueError:
        message = (done.stderr or done.stdout).strip()
        return {"success": False, "error-message": message[-500:]}


def check_encryption(address: str, options: Sequence[str]) -> None:
    """Raise `RunError` if a node with these `options` of flower-supernode would speak without encryption to a SuperLink
    that has it, or with it to one without: Flower 1.42 would then try again without end.

    A SuperLink that can't be reached yet is waited for by Flower.
    """
    encrypted = _speaks_tls(address)
    if encrypted is None:
        return
    insecure = "--insecure" in options
    if encrypted and insecure:
        how = "leave out --insecure, and name the authority's file, --root-certificates"
        raise RunError(f"the SuperLink at {address} speaks with encryption (TLS), and this node without: {how}")
    if not encrypted and not insecure:
        how = "give it a certificate, or the node --supernode=--insecure, to try it"
        raise RunError(f"the SuperLink at {address} speaks without encryption, and this node with it (TLS): {how}")


def check_port(options: Sequence[str]) -> None:
    """Raise `RunError` if the port of a node with these `options` of flower-supernode is in use: Flower 1.42 would end
    in a traceback.

    A node serves its own processes there. What is wrong with an address in another way, Flower says.
    """
    host = _value(options, "--host")
    port = _value(options, "--port")
    try:
        from flwr.supercore import constant

        host = host or str(constant.UVICORN_DEFAULT_HOST)
        port = port or str(constant.SUPERNODE_UVICORN_DEFAULT_PORT)
    except (ImportError, AttributeError):  # another version of Flower
        if not host or not port:
            return
    try:
        socket.create_server((host, int(port))).close()
    except (OSError, ValueError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            cure = f"give this node another one, such as --supernode='--port {int(port) + 1}'"
            raise RunError(
                f"port {port} of {host} is in use, and each node serves its processes at one: {cure}"
            ) from None


def _value(options: Sequence[str], name: str) -> str:
    """The value of an option, written `--port 1` or `--port=1`; "" if it is not there."""
    for place, option in enumerate(options):
        if option == name:
            return "".join(options[place + 1 : place + 2])
        if option.startswith(f"{name}="):
            return option.removeprefix(f"{name}=")
    return ""


def _speaks_tls(address: str) -> bool | None:
    """Whether who listens at host:port answers a greeting of TLS; None if nobody listens, or says neither."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False  # whose certificate it is, Flower checks
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except ssl.SSLError:
        return False
    except (OSError, ValueError):
        return None


def _why(answer: dict[str, Any]) -> str:
    """The reason for which a command of Flower was refused, in one line."""
    reason = " ".join(str(answer.get("error-message") or answer).split())
    stranger = STRANGER.search(reason)
    if stranger is None:
        return reason
    start = "start it at another one (--port), and name that in ~/.flwr/config.toml"
    return f"who answers at {stranger[1]} is no SuperLink: if another program has its port, {start}"


def environment(command: str) -> dict[str, str]:
    """The environment of one of Flower's programs, which finds the others by their names beside it."""
    folder = str(Path(command).parent)
    path = os.environ.get("PATH", os.defpath)
    return os.environ | {"PATH": f"{folder}{os.pathsep}{path}"}


def program(name: str) -> str:
    """The path of one of Flower's programs: beside this Python, or where the shell finds it."""
    with library("Flower", "fedsash flower", "fedsash[flower]"):
        import flwr  # noqa: F401
    beside_python = Path(sys.executable).parent / name
    if beside_python.exists():
        return str(beside_python)
    on_path = shutil.which(name)
    if on_path is None:
        raise LibraryError(f'the command {name} is missing: pip install "fedsash[flower]"')
    return on_path
