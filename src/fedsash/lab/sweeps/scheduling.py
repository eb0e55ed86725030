"""Training the segments of a sweep: several at the same time, each in its own process."""

from __future__ import annotations

import json
import logging
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
from .notes import end_lines
from .plan import Plan, Segment
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


MOST_WARNINGS = 20
"""So many warnings of runs are shown; all of them are in the logs."""
log = logging.getLogger("fedsash")


@dataclass
class SweepReport:
    """The result of a sweep: the runs that failed, with the reason, and the signal that asked it to stop, or 0."""

    folder: Path
    failed: dict[str, str] = field(default_factory=dict)
    signal: int = 0


@dataclass
class _Work:
    """What a process is at work on: a segment, on its `slots`."""

    segment: Segment
    slots: list[int]


class SegmentScheduler:
    """Gives segments to processes as soon as they are ready."""

    def __init__(self, out: Path, plan: Plan, machines: Machines, bar: Progress) -> None:
        self.report = SweepReport(out)
        self.bar = bar
        self.machines = machines
        self.slots = [*machines.slots]
        self.done = done(plan.segments, out)
        self.waiting = [*plan.segments]
        self.rounds_alike = rounds_alike(plan.segments, len(self.slots))
        self.reached: dict[str, int] = {}
        for segment in plan.segments:
            self.reached[segment.folder] = segment.last if segment.folder in self.done else _saved(segment, out)
        self.before = sum(segment.first for segment in plan.segments)
        self.running: dict[Process, _Work] = {}
        self.idle: list[Process] = []
        self.closed: list[Process] = []
        self.deaths: Counter[str] = Counter()
        self.messages: SimpleQueue[Message | StopRequest] = SimpleQueue()
        self.warned: set[str] = set()
        for segment in plan.segments:
            self.warned.update(end_lines(segment.experiment))
        self.said_before = len(self.warned)

    def work(self) -> SweepReport:
        """Train until all segments are finished, or until the running ones are stopped."""
        with on_stop(partial(self._request_stop, False), partial(self._request_stop, True)):
            self._show()
            self._start()
            while self.running:
                self._handle(self._next())
                self._show()
            for process in self.closed:
                process.join()
        return self.report

    def _next(self) -> Message | StopRequest:
        """The next message of a process, or the request to stop of a signal or of a limit of time."""
        limit = time_limit()
        if limit is None or self.report.signal:
            return self.messages.get()
        try:
            message = self.messages.get(timeout=max(limit.left, 0.0))
        except Empty:
            return StopRequest(TIME_UP)
        if isinstance(message, Message) and message.segment:
            limit.tick(message.segment)
        return message

    def _handle(self, message: Message | StopRequest) -> None:
        """Handle a message of a process, or a signal."""
        if isinstance(message, StopRequest):
            self._stop(message)
        elif message.sender not in self.running:
            pass  # its end has been handled already
        elif message.crash:
            self._crash(message)
            self._start()
        elif message.ended:
            self._handle_end(message)
            self._start()
        elif message.warning:
            self._warn(message)
        elif message.note and message.segment:
            self.bar.say(f"{message.segment}: {message.note}")
        elif message.note:
            self.bar.say(message.note)
        elif message.round is not None:
            self.reached[message.segment] = message.round

    def _warn(self, message: Message) -> None:
        """Log a warning of a segment, with its name, unless another one has had the same, as with other seeds.

        What is said before the training is not said again.
        """
        if message.warning in self.warned:
            return
        self.warned.add(message.warning)
        count = len(self.warned) - self.said_before
        if count <= MOST_WARNINGS:
            log.warning("%s: %s", message.segment, message.warning)
        elif count == MOST_WARNINGS + 1:
            log.warning("more warnings are in %s", self.report.folder / "logs")

    def _handle_end(self, message: Message) -> None:
        """Handle the end of a segment, after which its process may train another one."""
        work = self._free(message.sender)
        self.idle.append(message.sender)
        self._end(work.segment, message)

    def _start(self) -> None:
        """Start the segments that are ready, and close the processes for which there are none."""
        self.waiting = [segment for segment in self.waiting if self._open(segment)]
        ready = [segment for segment in self.waiting if segment.parent is None or segment.parent.folder in self.done]
        share = 1
        if self.machines.together and len(ready) == 1 and not self.running:
            share = len(self.slots)  # a segment that is alone has all cores
        while ready and len(self.slots) >= share and not self.report.signal:
            segment = ready.pop(0)
            self.waiting.remove(segment)
            slots = self.slots[:share]
            self.slots = self.slots[share:]
            process = self._process(slots[0])
            self.running[process] = _Work(segment, slots)
            alike = {"steps": steps_of(segment), "rounds_alike": self.rounds_alike[segment.folder]}
            process.train(segment, alike, self.report.folder, self.machines.cores(slots))
        for process in self.idle:
            process.close()
        self.closed += self.idle
        self.idle = []

    def _process(self, slot: int) -> Process:
        """An idle process, or a new one where there is none."""
        if self.idle:
            return self.idle.pop()
        return Process(self.machines.program(slot), self.messages)

    def _open(self, segment: Segment) -> bool:
        """Whether a segment is still to be trained: it is not done, and has not failed."""
        failed = any(run in self.report.failed for run in segment.runs)
        return segment.folder not in self.done and not failed

    def _free(self, process: Process) -> _Work:
        """Give back the slots of a process that has nothing left to do."""
        work = self.running.pop(process)
        self.slots += work.slots
        return work

    def _crash(self, message: Message) -> None:
        """Handle the end of a process. Its segment goes on in another one, as often as it is tried."""
        segment = self._free(message.sender).segment
        self.deaths[segment.folder] += 1
        if self.report.signal:
            return
        if self.deaths[segment.folder] < self.machines.tries:
            self.bar.say(f"{segment.folder}: a process has died ({message.reason}): another one goes on")
            self.waiting.append(segment)
        else:
            self._end(segment, message)

    def _end(self, segment: Segment, message: Message) -> None:
        """Handle the end of a segment. If it failed, the segments that continue it fail, too."""
        if message.reached == segment.last:
            self.done.add(segment.folder)
            self.reached[segment.folder] = segment.last  # also after an early end
            if not segment.shared:
                self.bar.say(f"{segment.folder}: {message.results or 'done'}")
        elif not self.report.signal:
            for run in segment.runs:
                self.report.failed[run] = message.reason
            self.bar.say(f"{segment.folder}: failed: {message.reason}")

    def _request_stop(self, at_once: bool, number: int) -> None:
        """Put the request of a signal among the messages: it is handled between two of them."""
        self.messages.put(StopRequest(number, at_once))

    def _stop(self, request: StopRequest) -> None:
        """Let every process finish its round, or stop at once."""
        for process in self.running:
            process.stop(request.at_once)
        if self.report.signal:
            return
        if request.number == TIME_UP:
            self.bar.say("the time is up: stopping after these rounds")
        else:
            self.bar.say("stopping after these rounds; press Ctrl-C again to stop at once")
        self.report.signal = request.number

    def _show(self) -> None:
        """Show the rounds of all segments together, and where each one is that is being trained."""
        running = [work.segment for work in self.running.values()]
        rounds = {segment.folder: f"{self.reached[segment.folder]}/{segment.last}" for segment in running}
        self.bar.update(sum(self.reached.values()) - self.before, rounds)


def done(segments: Sequence[Segment], out: Path) -> set[str]:
    """The folders of the segments that need no work: they are done, or all runs that share them are."""
    complete = {segment.folder for segment in segments if is_done(segment, out)}
    folders = set(complete)
    for segment in segments:
        if all(f"runs/{run}" in complete for run in segment.runs):
            folders.add(segment.folder)
    return folders


def rounds_alike(segments: Sequence[Segment], processes: int) -> dict[str, int]:
    """About how many rounds a process trains with steps like those of each segment, by the segments' folders.

    It follows from the plan alone, and not from what is left of it: a sweep that was stopped chooses its engines again
    as it has before.
    """
    steps = {segment.folder: steps_of(segment) for segment in segments}
    rounds: Counter[str] = Counter()
    for segment in segments:
        rounds[steps[segment.folder]] += segment.rounds
    alike = {}
    for segment in segments:
        of_a_process = rounds[steps[segment.folder]] // processes
        alike[segment.folder] = max(of_a_process, segment.rounds)
    return alike


def steps_of(segment: Segment) -> str:
    """The settings on which the local steps of a segment depend, beside their inputs."""
    table = segment.experiment.table()
    fixed = {key: value for key, value in table.items() if key not in NOT_IN_STEPS}
    if "local" in fixed:
        fixed["local"] = {key: value for key, value in table["local"].items() if key not in RATES}
    return json.dumps(fixed, sort_keys=True)


def trained(segments: Sequence[Segment], out: Path, finished: Collection[str]) -> int:
    """How many rounds of the segments, of which some are `finished`, are trained and saved."""
    rounds = 0
    for segment in segments:
        if segment.folder in finished:
            rounds += segment.rounds
        else:
            rounds += _saved(segment, out) - segment.first
    return rounds


def _saved(segment: Segment, out: Path) -> int:
    """The last of the segment's rounds whose state is saved; the round that it starts from if there is none."""
    last = max([segment.first, *saved_rounds(out / segment.folder / "state")])
    return min(last, segment.last)  # the folder may hold more rounds than this sweep has


def is_done(segment: Segment, out: Path) -> bool:
    """Whether the segment's last state and all its files are there. On a network a run may end before its last round.

    Otherwise its last session is repeated: it writes the results again. It fails if a file is lost that it can't write
    again.
    """
    folder = out / segment.folder
    try:
        summary = files.table(folder / "summary.json", sealed=True)
        if not segment.experiment.stateless:
            RunFolder(folder).check_whole()
    except (FileNotFoundError, NotADirectoryError, RunError):
        return False
    rounds = summary.get("rounds")
    if not summary.get("ended_early") and rounds != segment.last:
        return False
    return segment.experiment.stateless or rounds in saved_rounds(folder / "state")
