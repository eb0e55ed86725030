"""A Flower federation of real processes on this machine: a SuperLink, SuperNodes, and the commands of fedsash."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedsash.lab.config import load
from fedsash.runs import run
from support.observing import rows
from support.places import ROOT

BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


class Loopback:
    """The processes of a federation, with their logs in `home`; `one_port` is whether all goes through one address."""

    def __init__(self, home: Path) -> None:
        self.home, self.one_port = home, tuple(map(int, version("flwr").split(".")[:2])) >= (1, 35)
        self.fleet, self.control, self.app = (free_port() for _ in range(3))
        if self.one_port:
            self.control = self.fleet
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.before: list[str] = []
        """The words before each command, such as those of a tracer."""
        self.environment = os.environ | {
            "FLWR_HOME": str(home / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "HOME": str(home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        }
        (home / "flwr").mkdir(parents=True)

    def configure(self, *more: str) -> None:
        """Flower's own configuration: where the SuperLink is, and how it is reached."""
        lines = ["[superlink.loop]", f'address = "127.0.0.1:{self.control}"', *more]
        (self.home / "flwr" / "config.toml").write_text("\n".join(lines))

    def superlink(self, *more: str) -> None:
        """Start the SuperLink."""
        if self.one_port:
            where = ["--host", "127.0.0.1", "--port", str(self.fleet), "--disable-runtime-dependency-installation"]
        else:
            ports = {"fleet-api": self.fleet, "control-api": self.control, "serverappio-api": self.app}
            where = [part for name, port in ports.items() for part in (f"--{name}-address", f"127.0.0.1:{port}")]
        self.start("superlink", str(BIN / "flower-superlink"), *where, *more)
        self.wait_for(self.control)

    def node(self, number: int, data: Path, *more: str, name: str = "") -> None:
        """Start a node for a client, by fedsash."""
        port = str(free_port())
        where = (
            ["--host", "127.0.0.1", "--port", port]
            if self.one_port
            else ["--clientappio-api-address", f"127.0.0.1:{port}"]
        )
        address = f"127.0.0.1:{self.fleet}"
        state = str(self.home / "state")
        asked = ["flower", "node", str(data), "--number", str(number), "--superlink", address, "--state", state]
        self.start(
            name or f"node{number}",
            "fedsash",
            *asked,
            f"--supernode={shlex.join([*where, *more])}",
        )

    def serve(self, experiment: Path, out: Path, clients: int, *more: str) -> subprocess.Popen[bytes]:
        """Start `fedsash flower serve`."""
        asked = ["flower", "serve", str(experiment), "--out", str(out), "--clients", str(clients)]
        asked += ["--superlink", "loop", *more]
        return self.start("serve", "fedsash", *asked)

    def start(self, name: str, *command: str, folder: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a process, by default in `home`. The command `fedsash` is that of this source."""
        words = [sys.executable, "-m", *command] if command[0] == "fedsash" else command
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.before, *words],
                env=self.environment,
                cwd=folder or self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def kill(self, name: str) -> None:
        """Kill a process and all that it has started."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes.pop(name).wait(20)

    def kill_server(self) -> None:
        """Kill the process that runs the ServerApp, which the SuperLink has started."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                own = str(self.home).encode() in (folder / "environ").read_bytes()
                if own and b"flwr-serverapp" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue

    def wait_for(self, port: int, seconds: float = 60) -> None:
        """Wait until somebody listens at a port."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with socket.socket() as found:
                if found.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"nobody listens at {port}: {self.logs()}")

    def logs(self) -> str:
        """The end of every log."""
        files = sorted(self.home.glob("*.log"))
        return "\n".join(f"----- {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@contextmanager
def loopback(home: Path) -> Iterator[Loopback]:
    """The processes, which end with the `with` block."""
    found = Loopback(home)
    try:
        yield found
    finally:
        for process in reversed(found.processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in found.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with suppress(ProcessLookupError):  # a ClientApp that has just begun outlives its node
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(15)


def content(**tables: Any) -> str:
    """An experiment on digits with a small model, as TOML."""
    import tomli_w

    table = {
        "seed": 5,
        "rounds": 2,
        "device": "cpu",
        "data": {"name": "digits"},
        "model": {"name": "mlp", "hidden": [16]},
        "method": {"name": "scaffold"},
        "local": {"lr": 0.1, "batch": 16},
        "sampling": {"name": "uniform", "fraction": 1.0},
        "averages": {"w": {"name": "window", "size": 2}},
        "evaluation": {"every": 1, "last": 1},
        "engine": {"kind": "sequential", "workers": 1, "block": 1, "compile": False, "threads": 1}
        | {"memory_format": "channels_last"},
        "checkpoint": {"every": 1},
    }
    return tomli_w.dumps(table | tables)


def partition(clients: int) -> dict[str, Any]:
    return {"name": "iid", "clients": clients}


def files(home: Path, clients: int = 2, **tables: Any) -> tuple[Path, Path]:
    """The experiment file, and the file of a node's data, whose partition is the experiment's."""
    experiment, data = home / "experiment.toml", home / "mine.toml"
    experiment.write_text(content(partition=partition(clients), **tables))
    data.write_text(f'seed = 5\n[data]\nname = "digits"\n[partition]\nname = "iid"\nclients = {clients}\n')
    return experiment, data


def simulated(experiment: Path, out: Path) -> None:
    found = load(experiment)
    driver = found.driver()
    run(driver, found.rounds, out=out, progress=False, **found.settings(driver))


def served(flower: Loopback, experiment: Path, out: Path, *more: str, clients: int = 2) -> int:
    process = flower.serve(experiment, out, clients, "--roll-call", "120", *more)
    return process.wait(420)


@contextmanager
def started(home: Path, *data: Path, nodes: int = 2) -> Iterator[Loopback]:
    """A SuperLink and nodes with these files of data, without TLS."""
    with loopback(home / "home") as flower:
        flower.configure("insecure = true")
        flower.superlink("--insecure")
        for number in range(nodes):
            flower.node(number, data[number % len(data)], "--insecure")
        yield flower


def after(out: Path, round: int) -> bool:
    """Whether a run has recorded this round."""
    return (out / "metrics.jsonl").exists() and any(row["round"] == round for row in rows(out))


def wait(until: Callable[[], bool], flower: Loopback, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, flower.logs()
        time.sleep(0.1)
