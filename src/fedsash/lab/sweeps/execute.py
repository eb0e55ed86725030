"""Training the legs of a sweep: several at the same time, each in its own process. A stopped sweep can continue."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from ...basics.errors import RunError, check_count
from ...basics.fingerprint import differences
from ...basics.paths import check_folder
from ...basics.saved import saved_rounds
from .. import files
from ..config import ConfigError, Experiment, load_run
from ..config.words import shown
from ..progress import Progress
from ..runs.interrupts import on_stop
from . import index
from .axes import Sweep
from .plan import Leg, Plan, plan
from .process import Message, Process
from .stacks import stacks


@dataclass
class SweepReport:
    """The result of a sweep: the runs that failed, with the reason, and the signal that asked it to stop, or 0."""

    folder: Path
    failed: dict[str, str] = field(default_factory=dict)
    signal: int = 0


def execute(sweep: Sweep, out: Path | str, jobs: int | None = None, progress: bool = True) -> SweepReport:
    """Train the runs of a sweep into `out/runs`. Rounds that runs share are trained once, into `out/shared`.

    Finished runs are not trained again, and stopped runs continue. `jobs` is the number of runs that are trained at the
    same time, each on its share of the cores. By default it is the number of cores, or 1 on a GPU. If a run fails, it
    is reported with all runs that continue it, and the other runs go on. After Ctrl-C every run finishes its round and
    saves its state. `out/sweep.json` lists the runs, and `out/logs` holds their output. Several processes may train
    other runs into the same folder; one waits for legs that another one trains at the moment.

    Raises `ConfigError` if `out` holds another sweep, or a run of another experiment.
    """
    check_count("jobs", jobs)
    out = Path(out)
    check_folder(out)
    legs = plan(sweep.runs)
    for leg in legs.legs:
        check_same(leg.experiment, out / leg.folder)
    index.write(out, sweep, {})
    with Progress(legs.to_train, progress) as bar:
        executed = _Foreman(out, legs, _slots(min(jobs or _side_by_side(sweep), len(legs.legs))), bar).work()
    index.write(out, sweep, executed.failed)
    return executed


@dataclass
class _Work:
    """What a process is at work on: the legs of a `stack` that are `left`, by name, and its `slots`."""

    stack: list[Leg]
    left: dict[str, Leg]
    slots: list[list[int]]


class _Foreman:
    """Gives stacks of legs to processes as soon as the legs are ready."""

    def __init__(self, out: Path, plan: Plan, slots: list[list[int]], bar: Progress) -> None:
        self.executed, self.bar, self.slots = SweepReport(out), bar, slots
        self.done = {leg.folder for leg in plan.legs if _is_done(leg, out)}
        self.waiting = [*stacks(plan.legs, len(slots))]
        self.reached = {leg.folder: leg.last if leg.folder in self.done else leg.first for leg in plan.legs}
        self.before = sum(leg.first for leg in plan.legs)
        self.running: dict[Process, _Work] = {}
        self.idle: list[Process] = []
        self.heard: SimpleQueue[Message] = SimpleQueue()

    def work(self) -> SweepReport:
        """Train until all legs are finished, or until the running ones are stopped."""
        with on_stop(self._stop, self._stop_now):
            self._show()
            self._start()
            while self.running:
                self._hear(self.heard.get())
            for process in self.idle:
                process.close()
        return self.executed

    def _hear(self, message: Message) -> None:
        """Handle a message of a process."""
        if message.sender in self.idle:
            self.idle.remove(message.sender)  # it has crashed while it was idle
        elif message.crash:
            self._crash(message)
        elif message.alone or message.ended:
            work = self.running[message.sender]
            leg = work.left.pop(message.leg)
            if message.alone:
                self.waiting.append([leg])
            else:
                self._end(leg, message)
            if not work.left:
                self._free(message.sender)
                self.idle.append(message.sender)
            self._start()
        elif message.note:
            self.bar.say(f"{message.leg}: {message.note}" if message.leg else message.note)
        elif message.round is not None:
            self.reached[message.leg] = message.round
        self._show()

    def _start(self) -> None:
        """Start the stacks that are ready. A stack gets all cores if it is the only one."""
        self.waiting = [stack for stack in self.waiting if self._left(stack)]
        ready = [stack for stack in self.waiting if self._ready(stack)]
        share = len(self.slots) if len(ready) == 1 and not self.running else 1
        while ready and len(self.slots) >= share and not self.executed.signal:
            stack, slots = ready.pop(0), [self.slots.pop(0) for _ in range(share)]
            log = self.executed.folder / "logs" / f"{slots[0][0]}.txt"
            process = self.idle.pop() if self.idle else Process(log, self.heard)
            self.waiting.remove(stack)
            left = self._left(stack)
            self.running[process] = _Work(stack, {leg.folder: leg for leg in left}, slots)
            process.train(left, stack, self.executed.folder, sorted({core for slot in slots for core in slot}))
            if self.executed.signal:  # it came while the process was started
                process.stop()

    def _left(self, stack: list[Leg]) -> list[Leg]:
        """The legs of a stack that are still to be trained: those that are not done, and have not failed."""
        failed = self.executed.failed
        return [leg for leg in stack if leg.folder not in self.done and not failed.keys() & set(leg.runs)]

    def _ready(self, stack: list[Leg]) -> bool:
        """Whether all the legs before those that are left are done."""
        return all(leg.parent is None or leg.parent.folder in self.done for leg in self._left(stack))

    def _free(self, process: Process) -> _Work:
        """Give back the slots of a process that has nothing left to do."""
        work = self.running.pop(process)
        self.slots += work.slots
        return work

    def _crash(self, message: Message) -> None:
        """Handle the end of a process. If it had several legs, each is tried alone: then one of them fails at most."""
        left = self._free(message.sender).left
        again = len(left) > 1 and not self.executed.signal
        if again:
            self.bar.say(f"a process of {len(left)} runs has died ({message.reason}): they go on, each alone")
        for leg in left.values():
            if again:
                self.waiting.append([leg])
            else:
                self._end(leg, message)
        self._start()

    def _end(self, leg: Leg, message: Message) -> None:
        """Handle the end of a leg. If it failed, the legs that continue it fail, too."""
        if message.reached == leg.last:
            self.done.add(leg.folder)
            self.reached[leg.folder] = leg.last  # also after an early end
            if not leg.shared:
                self.bar.say(f"{leg.folder}: {message.results or 'done'}")
        elif not self.executed.signal:
            self.executed.failed |= dict.fromkeys(leg.runs, message.reason)
            self.bar.say(f"{leg.folder}: failed: {message.reason}")

    def _stop(self, number: int) -> None:
        """Let every process finish its round."""
        self.executed.signal = number
        for process in self.running:
            process.stop()
        with suppress(RuntimeError):  # the signal came while a line was being printed
            self.bar.say("stopping after these rounds; press Ctrl-C again to stop at once")

    def _stop_now(self, number: int) -> None:
        for process in self.running:
            process.stop_now()

    def _show(self) -> None:
        """Show the rounds of all legs together, and where each one is that is being trained."""
        running = [leg for work in self.running.values() for leg in work.left.values()]
        rounds = {leg.folder: f"{self.reached[leg.folder]}/{leg.last}" for leg in running}
        self.bar.update(sum(self.reached.values()) - self.before, rounds)


def check_same(experiment: Experiment, folder: Path) -> None:
    """Raise `ConfigError`, which names what differs, if the folder holds another experiment. The engine may differ."""
    if not (folder / "config.toml").exists():
        return
    there = replace(load_run(folder), engine=experiment.engine)
    if there != experiment:
        here, other = ({key: shown(value) for key, value in own.table().items()} for own in (experiment, there))
        what = "; ".join(differences(here, other)) or "other keys"
        raise ConfigError(
            f"{folder} holds a run of another experiment: {what}. Choose another folder, or remove this one"
        )


def _is_done(leg: Leg, out: Path) -> bool:
    """Whether the leg's last state and all its results are written. On a network a run may end before its last round.

    Otherwise its last session is repeated: it writes the results again and clears what a killed process has left.
    """
    file = out / leg.folder / "summary.json"
    try:
        summary = files.table(file)
    except (FileNotFoundError, RunError):
        return False
    last = summary.get("rounds") if summary.get("ended_early") else leg.last
    saved = leg.experiment.stateless or last in saved_rounds(out / leg.folder / "state")
    return saved and summary.get("rounds") == last and files.settled(file)


def _side_by_side(sweep: Sweep) -> int:
    import torch

    devices = {run.experiment.device for run in sweep.runs}
    on_gpu = any(device.startswith("cuda") for device in devices) or ("auto" in devices and torch.cuda.is_available())
    return 1 if on_gpu else len(_cores())


def _slots(jobs: int) -> list[list[int]]:
    """The cores of each process, as equal parts."""
    cores = _cores()
    return [cores[i::jobs] or [cores[i % len(cores)]] for i in range(jobs)]


def _cores() -> list[int]:
    known = hasattr(os, "sched_getaffinity")
    return sorted(os.sched_getaffinity(0)) if known else list(range(os.cpu_count() or 1))
