"""Training the legs of a sweep: several at the same time, each in its own process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from ...runs.folder import RunFolder
from ...runs.interrupts import on_stop
from ...runs.progress import Progress
from ...runs.time_limit import TIME_UP, time_limit
from ...settings.errors import RunError
from ...system import files
from ...vector.saved import saved_rounds
from .machines import Machines
from .plan import Leg, Plan
from .process import Message, Process, StopRequest

NOT_IN_STEPS = (
    "seed",
    "partition_seed",
    "rounds",
    "aggregation",
    "server",
    "averages",
    "broadcast",
    "evaluation",
    "metrics",
    "checkpoint",
    "trajectory",
    "callbacks",
    "track",
)
"""The settings of an experiment on which its local steps do not depend: those of the server and of the records."""
RATES = ("lr", "schedule", "local_schedule")
"""The settings of local training that are inputs of the steps."""


@dataclass
class SweepReport:
    """The result of a sweep: the runs that failed, with the reason, and the signal that asked it to stop, or 0."""

    folder: Path
    failed: dict[str, str] = field(default_factory=dict)
    signal: int = 0


@dataclass
class _Work:
    """What a process is at work on: a leg, on its `slots`."""

    leg: Leg
    slots: list[int]


class Foreman:
    """Gives legs to processes as soon as they are ready."""

    def __init__(self, out: Path, plan: Plan, machines: Machines, bar: Progress) -> None:
        self.executed = SweepReport(out)
        self.bar = bar
        self.machines = machines
        self.slots = [*machines.slots]
        self.done = done(plan.legs, out)
        self.waiting = [*plan.legs]
        self.rounds_alike = rounds_alike(plan.legs, len(self.slots))
        self.reached = {leg.folder: leg.last if leg.folder in self.done else _saved(leg, out) for leg in plan.legs}
        self.before = sum(leg.first for leg in plan.legs)
        self.running: dict[Process, _Work] = {}
        self.idle: list[Process] = []
        self.closed: list[Process] = []
        self.deaths: Counter[str] = Counter()
        self.heard: SimpleQueue[Message | StopRequest] = SimpleQueue()

    def work(self) -> SweepReport:
        """Train until all legs are finished, or until the running ones are stopped."""
        with on_stop(partial(self._ask, False), partial(self._ask, True)):
            self._show()
            self._start()
            while self.running:
                self._hear(self._next())
                self._show()
            for process in self.closed:
                process.join()
        return self.executed

    def _next(self) -> Message | StopRequest:
        """The next message of a process, or the request to stop of a signal or of a limit of time."""
        limit = time_limit()
        if limit is None or self.executed.signal:
            return self.heard.get()
        try:
            message = self.heard.get(timeout=max(limit.left, 0.0))
        except Empty:
            return StopRequest(TIME_UP)
        if isinstance(message, Message) and message.leg:
            limit.tick(message.leg)
        return message

    def _hear(self, message: Message | StopRequest) -> None:
        """Handle a message of a process, or a signal."""
        if isinstance(message, StopRequest):
            self._stop(message)
        elif message.sender not in self.running:
            pass  # it has ended, as it was told
        elif message.crash:
            self._crash(message)
            self._start()
        elif message.ended:
            self._hear_end(message)
            self._start()
        elif message.note:
            self.bar.say(f"{message.leg}: {message.note}" if message.leg else message.note)
        elif message.round is not None:
            self.reached[message.leg] = message.round

    def _hear_end(self, message: Message) -> None:
        """Handle the end of a leg, after which its process may train another one."""
        work = self._free(message.sender)
        self.idle.append(message.sender)
        self._end(work.leg, message)

    def _start(self) -> None:
        """Start the legs that are ready, and close the processes for which there are none."""
        self.waiting = [leg for leg in self.waiting if self._open(leg)]
        ready = [leg for leg in self.waiting if leg.parent is None or leg.parent.folder in self.done]
        share = len(self.slots) if self.machines.together and len(ready) == 1 and not self.running else 1
        while ready and len(self.slots) >= share and not self.executed.signal:
            leg = ready.pop(0)
            self.waiting.remove(leg)
            slots = [self.slots.pop(0) for _ in range(share)]
            process = self.idle.pop() if self.idle else Process(self.machines.program(slots[0]), self.heard)
            self.running[process] = _Work(leg, slots)
            alike = {"steps": steps_of(leg), "rounds_alike": self.rounds_alike[leg.folder]}
            process.train(leg, alike, self.executed.folder, self.machines.cores(slots))
        for process in self.idle:
            process.close()
        self.closed += self.idle
        self.idle = []

    def _open(self, leg: Leg) -> bool:
        """Whether a leg is still to be trained: it is not done, and has not failed."""
        return leg.folder not in self.done and not self.executed.failed.keys() & set(leg.runs)

    def _free(self, process: Process) -> _Work:
        """Give back the slots of a process that has nothing left to do."""
        work = self.running.pop(process)
        self.slots += work.slots
        return work

    def _crash(self, message: Message) -> None:
        """Handle the end of a process. Its leg goes on in another one, as often as it is tried."""
        leg = self._free(message.sender).leg
        self.deaths[leg.folder] += 1
        if self.executed.signal:
            return
        if self.deaths[leg.folder] < self.machines.tries:
            self.bar.say(f"{leg.folder}: a process has died ({message.reason}): another one goes on")
            self.waiting.append(leg)
        else:
            self._end(leg, message)

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

    def _ask(self, at_once: bool, number: int) -> None:
        self.heard.put(StopRequest(number, at_once))

    def _stop(self, asked: StopRequest) -> None:
        """Let every process finish its round, or stop at once."""
        for process in self.running:
            process.stop(asked.at_once)
        if not self.executed.signal:
            if asked.number == TIME_UP:
                self.bar.say("the time is up: stopping after these rounds")
            else:
                self.bar.say("stopping after these rounds; press Ctrl-C again to stop at once")
        self.executed.signal = self.executed.signal or asked.number

    def _show(self) -> None:
        """Show the rounds of all legs together, and where each one is that is being trained."""
        running = [work.leg for work in self.running.values()]
        rounds = {leg.folder: f"{self.reached[leg.folder]}/{leg.last}" for leg in running}
        self.bar.update(sum(self.reached.values()) - self.before, rounds)


def done(legs: Sequence[Leg], out: Path) -> set[str]:
    """The folders of the legs that need no work: they are done, or all runs that share them are."""
    found = {leg.folder for leg in legs if is_done(leg, out)}
    return found | {leg.folder for leg in legs if all(f"runs/{run}" in found for run in leg.runs)}


def rounds_alike(legs: Sequence[Leg], processes: int) -> dict[str, int]:
    """About how many rounds a process trains with steps like those of each leg, by the legs' folders.

    It follows from the plan alone, and not from what is left of it: a sweep that was stopped chooses its engines again
    as it has before.
    """
    steps = {leg.folder: steps_of(leg) for leg in legs}
    rounds: Counter[str] = Counter()
    for leg in legs:
        rounds[steps[leg.folder]] += leg.rounds
    return {leg.folder: max(rounds[steps[leg.folder]] // processes, leg.rounds) for leg in legs}


def steps_of(leg: Leg) -> str:
    """The settings on which the local steps of a leg depend, beside their inputs."""
    table = leg.experiment.table()
    fixed = {key: value for key, value in table.items() if key not in NOT_IN_STEPS}
    if "local" in fixed:
        fixed["local"] = {key: value for key, value in table["local"].items() if key not in RATES}
    return json.dumps(fixed, sort_keys=True)


def trained(legs: Sequence[Leg], out: Path, finished: Collection[str]) -> int:
    """How many rounds of the legs, of which some are `finished`, are trained and saved."""
    return sum(leg.rounds if leg.folder in finished else _saved(leg, out) - leg.first for leg in legs)


def _saved(leg: Leg, out: Path) -> int:
    """The last of the leg's rounds whose state is saved."""
    return min(max([leg.first, *saved_rounds(out / leg.folder / "state")]), leg.last)


def is_done(leg: Leg, out: Path) -> bool:
    """Whether the leg's last state and all its files are there. On a network a run may end before its last round.

    Otherwise its last session is repeated: it writes the results again. It fails if a file is lost that it can't write
    again.
    """
    folder = out / leg.folder
    try:
        summary = files.table(folder / "summary.json", sealed=True)
        if not leg.experiment.stateless:
            RunFolder(folder).check_whole()
    except (FileNotFoundError, NotADirectoryError, RunError):
        return False
    last = summary.get("rounds") if summary.get("ended_early") else leg.last
    saved = leg.experiment.stateless or last in saved_rounds(folder / "state")
    return saved and summary.get("rounds") == last
