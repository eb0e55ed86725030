"""Training the legs of a sweep: side by side, each in a process of its own, and taken up where they were left."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from ...basics.errors import check
from ..checkpoints import saved_rounds
from ..config import ConfigError, Experiment, load
from ..progress import Progress
from ..runs.interrupts import on_interrupt
from . import index
from .axes import Sweep
from .plan import Leg, Plan, plan
from .process import Message, Process


@dataclass
class SweepReport:
    """What became of a sweep: the runs that failed, with the reason, and whether it was stopped."""

    folder: Path
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def execute(sweep: Sweep, out: Path | str, jobs: int | None = None, progress: bool = True) -> SweepReport:
    """Train the runs of a sweep into `out/runs`, and their shared beginnings once, into `out/shared`.

    What is there already is not trained again, and a run that was stopped goes on. `jobs` is how many are trained side
    by side, each on its share of the cores: as many as there are cores, on a GPU one. A run that fails is named, with
    those that were to go on from it, and the others go on. On Ctrl-C every run ends its round and saves its state.
    `out/sweep.json` says which runs there are, `out/logs` what they had to say.

    Raises `ConfigError` if `out` holds another sweep, or a run of another experiment.
    """
    check(jobs is None or jobs >= 1, "jobs", jobs, "must be at least 1")
    out = Path(out)
    legs = plan(sweep.runs)
    for leg in legs.legs:
        check_same(leg.experiment, out / leg.folder)
    index.write(out, sweep, {})
    with Progress(legs.to_train, progress) as bar:
        executed = _Foreman(out, legs, _slots(jobs or _side_by_side(sweep)), bar).work()
    index.write(out, sweep, executed.failed)
    return executed


class _Foreman:
    """Hands out legs to processes as they become ready."""

    def __init__(self, out: Path, plan: Plan, slots: list[list[int]], bar: Progress) -> None:
        self.executed, self.bar, self.slots = SweepReport(out), bar, slots
        self.done = {leg.folder for leg in plan.legs if _is_done(leg, out)}
        self.waiting = [leg for leg in plan.legs if leg.folder not in self.done]
        self.reached = {leg.folder: leg.last if leg.folder in self.done else leg.first for leg in plan.legs}
        self.before = sum(leg.first for leg in plan.legs)
        self.running: dict[Process, tuple[Leg, list[list[int]]]] = {}
        self.idle: list[Process] = []
        self.heard: SimpleQueue[Message] = SimpleQueue()

    def work(self) -> SweepReport:
        """Until nothing is left to do, or until Ctrl-C has stopped what was running."""
        with on_interrupt(self._stop):
            self._show()
            self._start()
            while self.running:
                self._hear(self.heard.get())
            for process in self.idle:
                process.close()
        return self.executed

    def _hear(self, message: Message) -> None:
        """Take in what a process tells."""
        if message.sender in self.idle:
            self.idle.remove(message.sender)  # it has crashed with nothing to do
        elif message.ended:
            self._end(message)
            self._start()
        elif message.round is not None:
            self.reached[self.running[message.sender][0].folder] = message.round
            self._show()

    def _start(self) -> None:
        """Start what is ready; what is ready alone gets all cores."""
        ready = [leg for leg in self.waiting if leg.parent is None or leg.parent.folder in self.done]
        share = len(self.slots) if len(ready) == 1 and not self.running else 1
        while ready and len(self.slots) >= share and not self.executed.interrupted:
            leg, slots = ready.pop(0), [self.slots.pop(0) for _ in range(share)]
            log = self.executed.folder / "logs" / f"{slots[0][0]}.txt"
            process = self.idle.pop() if self.idle else Process(log, self.heard)
            self.waiting.remove(leg)
            self.running[process] = leg, slots
            self.bar.say(f"{leg.folder}: {leg.span}")
            process.train(leg, self.executed.folder, sorted({core for slot in slots for core in slot}))

    def _end(self, message: Message) -> None:
        """Take in what became of a leg; one that failed takes those with it that were to go on from it."""
        leg, slots = self.running.pop(message.sender)
        self.slots += slots
        self.idle += [] if message.crash else [message.sender]
        if message.reached == leg.last:
            self.done.add(leg.folder)
            self.bar.say(f"{leg.folder}: done{message.results}")
        elif not self.executed.interrupted:
            self.executed.failed |= dict.fromkeys(leg.runs, message.reason)
            self.waiting = [other for other in self.waiting if not set(other.runs) & set(leg.runs)]
            self.bar.say(f"{leg.folder}: failed: {message.reason}")

    def _stop(self) -> None:
        """Let every process end its round; a second time, end at once."""
        self.executed.interrupted = True
        self.bar.say("stopping after these rounds; press Ctrl-C again to stop at once")
        for process in self.running:
            process.interrupt()

    def _show(self) -> None:
        self.bar.update(sum(self.reached.values()) - self.before)


def check_same(experiment: Experiment, folder: Path) -> None:
    """Raise `ConfigError` if the folder holds a run of another experiment, whatever its engine."""
    file = folder / "config.toml"
    if file.exists() and replace(load(file), engine=experiment.engine) != experiment:
        raise ConfigError(f"{folder} holds a run of another experiment: choose another folder, or remove this one")


def _is_done(leg: Leg, out: Path) -> bool:
    """Whether the leg's last state is saved, and its end is written, which on a network may be before its rounds."""
    file = out / leg.folder / "summary.json"
    if not file.exists():
        return False
    summary = json.loads(file.read_text())
    last = summary["rounds"] if summary.get("ended_early") else leg.last
    saved = leg.experiment.stateless or last in saved_rounds(out / leg.folder / "state")
    return saved and bool(summary["rounds"] == last)


def _side_by_side(sweep: Sweep) -> int:
    import torch

    devices = {run.experiment.device for run in sweep.runs}
    on_gpu = any(device.startswith("cuda") for device in devices) or ("auto" in devices and torch.cuda.is_available())
    return 1 if on_gpu else len(_cores())


def _slots(jobs: int) -> list[list[int]]:
    """The cores, dealt out to so many processes."""
    cores = _cores()
    return [cores[i::jobs] or [cores[i % len(cores)]] for i in range(jobs)]


def _cores() -> list[int]:
    known = hasattr(os, "sched_getaffinity")
    return sorted(os.sched_getaffinity(0)) if known else list(range(os.cpu_count() or 1))
