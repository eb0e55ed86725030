"""Runs in real time over nodes in this process, their replays in a simulation, and what both have recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsash.averages import EMA, Window
from fedsash.client.messages import RoundReport
from fedsash.evaluation import Evaluation
from fedsash.flower import RealTime
from fedsash.methods import FedProx
from fedsash.methods.sampling import Uniform
from fedsash.network import AIMDWindow, Asynchronous, ConstantWindow, FedAsync, FedBuff, FedWindow
from fedsash.network.schedulers import Scheduler
from fedsash.runs import Callback, Checkpoint, run
from fedsash.server.federation import Federation
from fedsash.system.host import Clock, host
from fedsash.testing.grid import InProcessGrid
from support.flower import here, there

SCHEDULERS: dict[str, Scheduler] = {
    "fedasync": FedAsync(weight="polynomial"),
    "fedbuff": FedBuff(3),
    "ring": FedWindow(ConstantWindow(3)),
    "slide": FedWindow(ConstantWindow(3), slide=2, start="newest", cache="empty"),
    "pipelined": FedWindow(ConstantWindow(3), pipelined=True),
    "adaptive": FedWindow(AIMDWindow(2, delay=1.0), pipelined=True),
}
STEPS = 9


class OwnClock(Clock):
    """A clock that moves when somebody sleeps, and by a microsecond at each look: no test waits or comes too late."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        self.seconds += 1e-6
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


CLOCK = OwnClock()
"""The clock of a module's runs in real time, if it wants so: `on_own_clock`."""


def on_own_clock(patch: pytest.MonkeyPatch) -> None:
    """Let the server in real time look at `CLOCK` in place of the clock on the wall."""
    patch.setattr(host, "clock", CLOCK)


def simulated(**more: Any) -> Federation:
    averages = {"w": Window(3), "ema": EMA(0.5)}
    settings = {"method": FedProx(0.1), "averages": averages, "evaluation": Evaluation(every=3, last=1)}
    return here(**settings | {"sampling": Uniform(), "broadcast": "w"} | more)


def driver(
    scheduler: Scheduler,
    nodes: InProcessGrid | None = None,
    limit: int | None = None,
    replay: Path | None = None,
    world: Federation | None = None,
    **waiting: float,
) -> Asynchronous:
    """The driver over these nodes, or in a simulation without them."""
    world = world or simulated()
    clients = world if nodes is None else there(nodes, world, **{"deadline": 0.5} | waiting)
    return Asynchronous(clients, RealTime(limit, replay), scheduler)


def trained(federation: Asynchronous, out: Path, steps: int = STEPS, **how: Any) -> Any:
    return run(federation, steps, out=out, progress=False, checkpoint=Checkpoint(every=2), **how)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def arrivals(folder: Path) -> list[Any]:
    found: list[Any] = json.loads((folder / "timeline.json").read_text())["arrivals"]
    return found


def assert_same_run(one: Path, other: Path) -> None:
    """The same models, bitwise, the same record and the same metrics, times included."""
    for model in ("model", "w", "ema"):
        first, second = (folder / "models" / f"{model}.safetensors" for folder in (one, other))
        assert first.read_bytes() == second.read_bytes()
    assert arrivals(one) == arrivals(other)
    assert rows(one) == rows(other)


class Reports(Callback):
    """Keeps the reports of the rounds, and may end the process, as it were."""

    def __init__(self, crash: int = 0) -> None:
        self.crash, self.seen = crash, list[RoundReport]()

    def round(self, run: Any, report: RoundReport) -> None:
        self.seen.append(report)
        if report.round == self.crash:
            raise KeyboardInterrupt
