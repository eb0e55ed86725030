"""Processes that start at once: a server that has imported everything forks them.

A campaign needs thousands of short commands, and to import PyTorch takes a second each time. `Server` starts one
process that has imported fedsash and its libraries, and nothing else. For each command it forks a process of its own
session, which runs the command from its beginning to the interpreter's end, as `python -m fedsash` would. A sweep's
processes come from the same server (`TORTURE_SERVER` names its socket).
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import IO, Any, NoReturn

SOCKET = "TORTURE_SERVER"
FEDSASH = "fedsash.lab.cli:main"
PRELOADED = (
    *(
        "torch",
        "numpy",
        "safetensors.torch",
        "sklearn.datasets",
        "matplotlib.pyplot",
        "matplotlib.backends.backend_agg",
    ),
    *(
        "torch._dynamo",
        "rich.progress",
        "rich.table",
        "pydantic",
        "tomli_w",
        "simpy",
        "plotly.graph_objects",
        "scipy.stats",
        "PIL.Image",
        "pyarrow.parquet",
    ),
    *("fedsash.lab.cli", "fedsash.runs", "fedsash.lab.config", "fedsash.lab.sweeps", "fedsash.lab.report.page"),
    *("fedsash.lab.studies.opened", "fedsash.lab.papers.reproduce", "fedsash.lab.sweeps.job", "fedsash.network"),
)


class Process:
    """A process of the server: what `subprocess.Popen` is, as far as the campaign and a sweep need it."""

    def __init__(self, place: str, entry: str, arguments: Sequence[Any], streams: Sequence[int], **more: Any) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(place)
        order = {"entry": entry, "arguments": list(arguments), "environment": dict(os.environ), "folder": os.getcwd()}
        handles = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams).tobytes())]
        self._connection.sendmsg([json.dumps(order | more).encode() + b"\n"], handles)
        self._told = self._connection.makefile("r")
        self.pid = int(self._told.readline())
        self.returncode: int | None = None
        self.seconds = 0.0  # of its processors' time
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; minus the signal that killed it. Raises `TimeoutError` after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise TimeoutError(f"no end after {timeout} seconds")
            code, seconds = self._told.readline().split()
            self.returncode = int(code)
            self.seconds = float(seconds)
            self._told.close()
            self._connection.close()
        return self.returncode

    def ended(self) -> bool:
        """Whether the process has ended."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def send_to_group(self, number: int) -> None:
        """Send a signal to the process and to all that it has forked, as a terminal does."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Anew(subprocess.Popen[bytes]):
    """`python -m fedsash`, started as a user starts it, with what the campaign needs of a `Process`."""

    def __init__(self, arguments: Sequence[str], folder: Path, out: int, err: int) -> None:
        command = [sys.executable, "-m", "fedsash", *arguments]
        environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        settings: dict[str, Any] = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL}
        super().__init__(command, stdout=out, stderr=err, start_new_session=True, **settings)
        self.seconds = 0.0  # what importing takes can't be told from the work

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; minus the signal that killed it. Raises `TimeoutError` after `timeout` seconds."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def send_to_group(self, number: int) -> None:
        """Send a signal to the process and to all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.poll() is not None


class Server:
    """The server, from the campaign's side."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="torture-")
        self._place = f"{self._folder.name}/server"
        environment = os.environ | {"MPLBACKEND": "Agg", SOCKET: self._place, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        command = [sys.executable, "-m", "torture.server", self._place]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the server of processes has not started")

    def start(
        self, entry: str, arguments: Sequence[Any], folder: Path, out: int, err: int, more: Mapping[str, str]
    ) -> Process:
        """Run the function `entry` (`"module:function"`) in `folder`. `more` is added to its environment."""
        environment = os.environ | {"MPLBACKEND": "Agg", SOCKET: self._place, "COLUMNS": "120", **more}
        with open(os.devnull) as nothing:
            streams = [nothing.fileno(), out, err]
            return Process(self._place, entry, arguments, streams, environment=environment, folder=str(folder))

    def close(self) -> None:
        """End the server, and all its processes that still run."""
        self._process.communicate()
        self._folder.cleanup()


def _popen(command: Sequence[str], *, stderr: IO[bytes], **settings: Any) -> Any:
    """`subprocess.Popen` for a sweep's processes, with pipes for input and output: forked, and not started anew."""
    if "fedsash.lab.sweeps.job" not in command or settings.get("pass_fds"):
        return subprocess.Popen(command, stderr=stderr, **settings)
    (input, write) = os.pipe()
    (read, output) = os.pipe()
    place = os.environ[SOCKET]
    more = {"environment": dict(settings.get("env") or os.environ), "folder": str(settings.get("cwd") or os.getcwd())}
    process = Process(place, "torture.server:job", [], [input, output, stderr.fileno()], **more)
    os.close(input)
    os.close(output)
    process.stdin = os.fdopen(write, "wb")
    process.stdout = os.fdopen(read, "rb")
    return process


def command(arguments: Sequence[str]) -> int:
    """The command line of fedsash in a forked process. A sweep in it starts its processes at the server."""
    from fedsash.lab.cli import main
    from fedsash.system import subprocesses

    vars(subprocesses)["subprocess"] = SimpleNamespace(Popen=_popen, PIPE=subprocess.PIPE)
    sys.argv = ["fedsash", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main(arguments)


def job() -> None:
    """A sweep's process. If its parent's file operations are watched, so are its own."""
    from fedsash.lab.sweeps.job import main

    from . import file_operations

    if file_operations.ORDER in os.environ:
        file_operations.watch("job")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _serve(place: str) -> dict[str, Any]:
    """Fork a process for each order, until standard input ends. Returns in each forked process, with its order."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    events.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in events.select():
            if key.fileobj is sys.stdin:
                for pid, _ in (key.data for key in events.get_map().values() if key.data):
                    os.killpg(pid, signal.SIGKILL)
                os._exit(0)
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                order, streams = _receive(connection)
                pid = os.fork()
                if pid == 0:
                    for other in [key for key in events.get_map().values() if key.fileobj is not sys.stdin]:
                        _close(other.fileobj, other.data)
                    connection.close()
                    _become(order, streams)
                    return order
                for stream in streams:
                    os.close(stream)
                connection.sendall(f"{pid}\n".encode())
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            else:
                events.unregister(key.fileobj)
                pid, connection = key.data
                _, status, used = os.wait4(pid, 0)
                with suppress(OSError):
                    seconds = used.ru_utime + used.ru_stime
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)} {seconds}\n".encode())
                _close(key.fileobj, key.data)


def _close(handle: Any, data: Any) -> None:
    if isinstance(handle, int):
        os.close(handle)
        data[1].close()
    else:
        handle.close()


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    content, handles, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not content.endswith(b"\n"):
        content += connection.recv(1 << 16)
    return json.loads(content), handles


def _become(order: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Become a new process: its session, streams, folder and environment, and no trace of the server."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> NoReturn:
    """Serve, and run what was ordered in each forked process."""
    import torch

    torch.set_num_threads(1)  # a process with threads can't be forked safely
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # or the first collection of every process would copy all memory
    order = _serve(sys.argv[1])
    code = 1
    try:
        code = _carry_out(order)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # what follows is the interpreter's own end
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)  # the interpreter's own end takes a second to take everything down


def _carry_out(order: Mapping[str, Any]) -> int:
    module, _, name = order["entry"].partition(":")
    code: int | None = getattr(importlib.import_module(module), name)(*order["arguments"])
    threading._shutdown()  # type: ignore[attr-defined]  # as at an interpreter's end: pools are told first, then joined
    return code or 0


if __name__ == "__main__":
    main()
