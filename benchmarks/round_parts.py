"""Where the time of a round goes: in each part of it, in Python and PyTorch's calls, and how often a device is asked.

    python -m benchmarks.round_parts [--work W1] [--way "stacked, compiled"] [--rounds 2000] [--device cpu]

A part's time is its own, without the parts that it calls: the 10th percentile over the rounds, since other programs use
the processor, too. On a GPU a part that waits for it has the time of the kernels before. What follows is how often a
round calls each operator of PyTorch outside all others; on a GPU also what the driver is asked: kernels, graphs, copies
between host and device, waits.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import fedsash as fs
from fedsash.client import Trainer, trainer
from fedsash.client.messages import Collector
from fedsash.client.plan import Batches
from fedsash.client.steps import LocalSteps
from fedsash.engines import pick_device
from fedsash.engines.compiled import CompiledSteps
from fedsash.engines.uploads import Sums, Uploads
from fedsash.methods import Method
from fedsash.methods.sampling import Sampling
from fedsash.server.round import ServerRound

from . import gpu
from .gpu_branches import of_work

PARTS: Mapping[str, tuple[Any, str]] = {
    "choose the clients": (Sampling, "clients"),
    "ask: the rest": (ServerRound, "ask"),
    "plan of the round": (Trainer, "plan"),
    "plan of the batches": (Batches, "plan"),
    "what clients begin with": (Trainer, "_begin"),
    "batches to the device": (Trainer, "_draws"),
    "compiled steps": (CompiledSteps, "__call__"),
    "steps": (LocalSteps, "__call__"),
    "uploads": (Method, "upload"),
    "norms of the uploads": (trainer, "largest_norms"),
    "train: the rest": (Trainer, "train"),
    "answer: the rest": (Trainer, "answer"),
    "guard of the uploads": (Uploads, "take"),
    "begin of the sums": (Uploads, "__init__"),
    "sums": (Sums, "add"),
    "hear: the rest": (Collector, "hear"),
    "report": (Uploads, "report"),
    "step of the server: the rest": (ServerRound, "step"),
    "averages": (ServerRound, "observe"),
    "round: the rest": (ServerRound, "one_round"),
}
"""The parts of a round, as functions."""

PERCENTILE = 10
WARM = 5
PROFILED = 10


class Parts:
    """Takes the time of each part: its own, without the parts inside it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose own time is added to that of the part."""

        @wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            self._inside.append(0.0)
            try:
                return function(*arguments, **named)
            finally:
                whole = time.perf_counter() - began
                self.seconds[name] += whole - self._inside.pop()
                if self._inside:
                    self._inside[-1] += whole

        return run

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Let all `PARTS` be timed meanwhile."""
        before = {name: getattr(owner, function) for name, (owner, function) in PARTS.items()}
        try:
            for name, (owner, function) in PARTS.items():
                setattr(owner, function, self.timed(name, before[name]))
            yield
        finally:
            for name, (owner, function) in PARTS.items():
                setattr(owner, function, before[name])


def times(federation: fs.Federation, rounds: int) -> dict[str, float]:
    """The seconds of each part of a round that takes any, the longest first."""
    parts = Parts()
    of_rounds: defaultdict[str, list[float]] = defaultdict(list)
    with parts.taken(), federation:
        state = after(federation, federation.start(), WARM)
        for _ in range(rounds):
            parts.seconds.clear()
            state = after(federation, state, 1)
            for name, seconds in parts.seconds.items():
                of_rounds[name].append(seconds)
    typical = {name: float(np.percentile(seconds, PERCENTILE)) for name, seconds in of_rounds.items()}
    return dict(sorted(typical.items(), key=lambda part: -part[1]))


def calls(federation: fs.Federation) -> Counter[str]:
    """How often some rounds call each operator of PyTorch outside all others, and what they ask the driver of a GPU."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    counted: Counter[str] = Counter()
    with federation:
        state = after(federation, federation.start(), WARM)
        with profile(activities=activities) as profiled:
            after(federation, state, PROFILED)
    for event in profiled.events():
        of_device = event.name.startswith(("cuda", "Memcpy", "Memset"))
        outermost = event.cpu_parent is None and event.name.startswith("aten::")
        if of_device or outermost:
            counted[event.name] += 1
    return counted


def after(federation: fs.Federation, state: Any, rounds: int) -> Any:
    """The state after so many more rounds."""
    for _ in range(rounds):
        state, _ = federation.round(state)
    return state


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.round_parts")
    parser.add_argument("--work", default="W1")
    parser.add_argument("--way", choices=gpu.ENGINES, default="stacked, compiled", metavar="WAY")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--device", default=str(pick_device("auto")))
    options = parser.parse_args(arguments)
    federation = replace(of_work(options.work, options.device, tiny=False), engine=gpu.ENGINES[options.way])
    typical = times(federation, options.rounds)
    whole = sum(typical.values())
    print("| part | microseconds | share |\n|---|---|---|")
    for name, seconds in typical.items():
        print(f"| {name} | {1e6 * seconds:.1f} | {seconds / whole:.1%} |")
    print(f"| all | {1e6 * whole:.1f} | |\n", flush=True)
    print("| call | in a round |\n|---|---|")
    for name, count in calls(federation).most_common():
        print(f"| {name} | {count / PROFILED:g} |")


if __name__ == "__main__":
    main()
