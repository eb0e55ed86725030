"""A session: the rounds of a run in one process, from a state to the end or to a request to stop."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..client.messages import Ended, RoundReport
from ..evaluation import Chronicle, History, PrivacySpent, Problems, Record
from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import check
from ..settings.limits import Count
from ..settings.setting import checked_value
from .callback import Callback, LiveRun
from .client_results import content
from .driver import Driver
from .folder import RunFolder
from .forks import Fork
from .interrupts import Stop, stop_flag
from .opening import opening
from .progress import Progress
from .recorder import RunRecorder
from .result import Result
from .running_sums import NEVER, RunningSums, SumRecorder
from .settings import Checkpoint
from .summaries import forget_peaks, summary
from .tally import Tally, best_after
from .warned import beyond, doubtful, rate_notes, uncounted, unprotected

log = logging.getLogger("fedsash")


@dataclass
class Session:
    """One session of a run: from a state to the run's end, or to a request to stop.

    If an exception ends the session, the last complete state is saved.
    """

    driver: Driver
    rounds: int
    out: Path | str | None
    checkpoint: Checkpoint
    shown: bool
    callbacks: Sequence[Callback]
    config: Mapping[str, Any] | None
    until: int | None
    trajectory: RunningSums = NEVER

    def __post_init__(self) -> None:
        self._check_arguments()
        self.rounds = int(checked_value("rounds", Count, self.rounds))
        self.end = self.rounds if self.until is None else min(self.until, self.rounds)
        self.progress = Progress(self.rounds, self.shown)
        self.folder = None if self.out is None else RunFolder(self.out)
        self.place = None if self.folder is None else self.folder.path
        if self.folder is not None:
            self.folder.check_path()
        self.sums = SumRecorder(self.trajectory, self.place)
        self.recorder = RunRecorder(self.driver, self.rounds, self.folder, self.checkpoint, self.sums)
        self.last_report: RoundReport | None = None
        self.over = False
        self.live: LiveRun | None = None
        self.result: Result | None = None
        self.chronicle: Chronicle | None = None

    def _check_arguments(self) -> None:
        """Raise `SettingError` for an argument of another type, and for a callback that does not fit the federation."""
        check(hasattr(self.driver, "federation"), "federation", self.driver, "must be a Federation")
        check(isinstance(self.checkpoint, Checkpoint), "checkpoint", self.checkpoint, "must be a Checkpoint(...)")
        check(isinstance(self.trajectory, RunningSums), "trajectory", self.trajectory, "must be RunningSums(...)")
        check(isinstance(self.shown, bool), "progress", self.shown, "must be True or False")
        listed = isinstance(self.callbacks, Sequence) and all(isinstance(one, Callback) for one in self.callbacks)
        check(listed, "callbacks", self.callbacks, "must be a list of objects whose classes extend Callback")
        for callback in self.callbacks:
            callback.fits(self.driver.federation)

    @property
    def federation(self) -> Federation:
        """The federation whose models the run trains, with the engine with which it began."""
        return self.recorder.federation

    def run(self, fork: Fork | None) -> Result:
        """Begin the run and train it. Its folder is locked meanwhile."""
        lock: AbstractContextManager[None] = nullcontext()
        if self.folder is not None:
            lock = self.folder.held()
        with lock:
            self.recorder.begin(fork)
            return self._train(resumed=False)

    def resume(self) -> Result:
        """Go on with the run in the folder, which is locked meanwhile."""
        assert self.folder is not None
        self.folder.check_begun()
        with self.folder.held():
            self.recorder.reopen()
            return self._train(resumed=True)

    def _train(self, resumed: bool) -> Result:
        """Train until the end, or until a signal or a callback asks to stop: then the current round is finished.

        If an exception ends the training, the last complete state is saved, and a note of the exception says how to
        resume.
        """
        forget_peaks()
        state = self.recorder.state
        tally = self.recorder.tally
        with ExitStack() as stack:
            stack.enter_context(self.federation)
            stop = stack.enter_context(stop_flag(self.progress.say))
            stack.enter_context(self.progress)
            # An executor with a saved state has a chronicle, which is written at the end.
            started = state.round < self.end or tally.evaluation_due or bool(state.executor)
            if started:
                for note in self._notes(state):
                    self.progress.say(note)
            for line in self._warnings(state):
                log.warning(line)
            self.progress.update(state.round)
            history = self.recorder.history
            if self.folder is not None:
                forked = tally.forked is not None
                self.folder.write_beginning(self.federation, forked, self._settings(), started, history)
            self.chronicle = self.recorder.driver.chronicle
            config = self.config or {}
            self.live = LiveRun(self.federation, state, tally, self.rounds, self.place, config, history, resumed)
            with ExitStack() as called:
                try:
                    self._begin(self.live, called)
                    return self._go_on(stop, self.live)
                except BaseException as error:
                    self._rescue(error)
                    raise

    def _notes(self, state: State) -> Iterator[str]:
        """Lines that say what is trained, then those of the engine, which is started."""
        yield from opening(self.recorder.driver, state, self.rounds, self.config or {})
        in_process = self.federation.clients.data is not None  # other clients' nodes have engines of their own
        if in_process and "auto" in self.federation.described().values():
            yield "engine: choosing what is fastest on this machine"
        yield from self.recorder.driver.prepare(self.rounds - state.round, state)

    def _warnings(self, state: State) -> Iterator[str]:
        """Lines on what this run may not learn, will not reach and does not protect."""
        yield from doubtful(self.federation)
        facts = self.recorder.driver.facts()
        yield from beyond(self.federation, self.checkpoint, self.trajectory, self.rounds, state)
        yield from rate_notes(facts["local"], facts.get("scheduler"), self.rounds)
        yield from unprotected(self.federation, state)

    def _begin(self, live: LiveRun, called: ExitStack) -> None:
        """Let all callbacks begin, and end with the session, also after an exception."""
        for callback in self.callbacks:
            callback.begin(live)
            called.callback(lambda callback: callback.end(live, self.result), callback)

    def _go_on(self, stop: Stop, live: LiveRun) -> Result:
        """Make round after round until the end, or until a signal or a callback asks to stop."""
        recorder = self.recorder
        if recorder.tally.evaluation_due:
            self._evaluate(live)
            recorder.save()
        stop.keep_time()
        while recorder.state.round < self.end and not (stop or self.over or live.stopped):
            began = time.perf_counter()
            try:
                after, report = recorder.driver.round(recorder.state)
            except Ended:
                self.over = True
                if recorder.unevaluated(recorder.state):
                    self._evaluate(live)
            else:
                self._finish(after, report, began, live)
            stop.keep_time()
        return self._end(stop.number, live.stopped)

    def _settings(self) -> dict[str, Any]:
        """The content of config.toml: the experiment, or what is known of a run whose federation was made in Python."""
        if self.config is not None:
            return {**self.config, "rounds": self.rounds}
        return {
            "built_by": "",
            "checkpoint": asdict(self.checkpoint),
            "trajectory": asdict(self.trajectory),
            "rounds": self.rounds,
        }

    def _end(self, signal: int, stopped: str) -> Result:
        if self.recorder.unsaved:
            self.recorder.save()
        state = self.recorder.driver.saved(self.recorder.state)
        tally = self.recorder.tally
        history = self.recorder.history
        for line in uncounted(self.federation, state, tally.forked):
            log.warning(line)
        left = state.round < self.rounds and not self.over
        numbers = summary(self.federation, state, tally, history, self.chronicle, stopped if left else "")
        interrupted = left and not stopped
        self.result = Result(history, numbers, state, tally, self.federation, self.place, interrupted, signal)
        if self.folder is not None:
            self.folder.write_end(self.result, self.chronicle)
        return self.result

    def _finish(self, state: State, report: RoundReport, began: float, live: LiveRun) -> None:
        """Count, evaluate, record and save a round that `began` at this time and led to this state."""
        before = self.recorder.tally
        seconds = time.perf_counter() - began
        tally = replace(
            before,
            samples=before.samples + report.samples,
            seconds=before.seconds + seconds,
            training_seconds=before.training_seconds + seconds,
            evaluation_due=self.federation.evaluation.due(state.round, self.rounds),
        )
        self.sums.observe(state, report.moved)
        self._report(report)
        self._note(state, tally)
        values = None
        if tally.evaluation_due:
            values = self._evaluate(live)
        if self.checkpoint.due(state.round, self.rounds):
            self.recorder.save()
        self.progress.update(state.round, values)
        for callback in self.callbacks:
            callback.round(live, report)

    def _evaluate(self, live: LiveRun) -> dict[str, str]:
        """Evaluate all models of the last round, and record the scores and the decisions that follow from them.

        Returns the value of each model as text.
        """
        began = time.perf_counter()
        state = self.recorder.state
        with self.progress.evaluation() as each:
            scores = self.federation.evaluate(state, each)
            best = best_after(self.recorder.tally.best, self.federation, state, scores)
            state, decisions = self.federation.learn(state, scores)
        data = self.federation.clients.data
        names = () if data is None else data.client_names
        self.recorder.clients = content(scores, names)
        records: list[Record] = [*scores, *decisions]
        privacy = self.federation.privacy(state)
        if privacy is not None:
            records.append(PrivacySpent(round=state.round, **asdict(privacy)))
        if self.chronicle is not None:
            records = self.chronicle.records(state.round, state.w, records)
        self.recorder.record(records)
        seconds = self.recorder.tally.seconds + time.perf_counter() - began
        self._note(state, replace(self.recorder.tally, best=best, seconds=seconds, evaluation_due=False))
        for callback in self.callbacks:
            callback.evaluation(live, scores)
        criterion = self.federation.goal.criterion
        curves = History(records).curves(criterion)
        return {model: criterion.text(points[state.round]) for model, points in curves.models.items()}

    def _report(self, outcome: RoundReport) -> None:
        """Report problems of a round in the metrics and in the log.

        The log leaves out problems of the round before. Clients are named again when others have joined them, and not
        when each round has others: then they are missing by chance.
        """
        round = outcome.round
        refused_before: set[int] = set()
        missing_before: set[int] = set()
        skipped_before = ""
        if self.last_report is not None:
            refused_before = set(self.last_report.refused)
            missing_before = set(self.last_report.missing)
            skipped_before = self.last_report.skipped
        joined = set(outcome.refused) > refused_before or set(outcome.missing) > missing_before
        if joined or (outcome.skipped and outcome.skipped != skipped_before):
            for line in outcome.lines():
                log.warning("round %d: %s", round, line)
        if outcome.refused or outcome.missing or (outcome.skipped and len(outcome.clients)):
            problems = Problems(round=round, refused=outcome.refused, missing=outcome.missing, skipped=outcome.skipped)
            self.recorder.record([problems])
        self.last_report = outcome

    def _note(self, state: State, tally: Tally) -> None:
        """Note that the state and its tally are complete, with all rows so far."""
        self.recorder.note(state, tally)
        if self.live is not None:
            self.live.state = self.recorder.state
            self.live.tally = self.recorder.tally

    def _rescue(self, error: BaseException) -> None:
        """Save the last complete state before an exception ends the session, and note how to resume."""
        if self.folder is not None:
            self.recorder.rescue(error)
            error.add_note(f"go on with: {self._command()}")

    def _command(self) -> str:
        """How to go on with the run: a command, or a call if its federation was made in Python."""
        if self.config is not None and self.config.get("built_by") != "":
            if self.federation.clients.data is None:
                return "the fedsash flower serve that began it"
            return shlex.join(["fedsash", "resume", str(self.place)])
        return f"fedsash.resume(federation, rounds, {str(self.place)!r})"
