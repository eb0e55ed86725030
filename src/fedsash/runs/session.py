"""A session: the rounds of a run in one process, from a state to the end or to a request to stop."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
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
from ..system.paths import check_folder
from .callback import Callback, LiveRun
from .client_results import content
from .driver import Driver
from .folder import RunFolder
from .forks import Fork
from .interrupts import Stop, stop_flag
from .ledger import Ledger
from .opening import opening
from .progress import Progress
from .result import Result
from .running_sums import NEVER, Bookkeeper, RunningSums
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
        if self.place is not None:
            check_folder(self.place)
        self.sums = Bookkeeper(self.trajectory, self.place)
        self.ledger = Ledger(self.driver, self.rounds, self.folder, self.checkpoint, self.sums)
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
        return self.ledger.federation

    def run(self, fork: Fork | None) -> Result:
        """Begin the run and train it. Nobody else works in its folder meanwhile."""
        with nullcontext() if self.folder is None else self.folder.held():
            self.ledger.begin(fork)
            return self._train(resumed=False)

    def resume(self) -> Result:
        """Go on with the run in the folder. Nobody else works there meanwhile."""
        assert self.folder is not None
        self.folder.check_begun()
        with self.folder.held():
            self.ledger.reopen()
            return self._train(resumed=True)

    def _train(self, resumed: bool) -> Result:
        """Train until the end, or until a signal or a callback asks to stop: then the current round is finished.

        If an exception ends the training, the last complete state is saved, and a note of the exception says how to
        resume.
        """
        forget_peaks()
        state = self.ledger.state
        tally = self.ledger.tally
        with ExitStack() as stack:
            stack.enter_context(self.federation)
            stop = stack.enter_context(stop_flag(self.progress.say))
            stack.enter_context(self.progress)
            # an executor with a saved state has a chronicle
            started = state.round < self.end or tally.evaluation_due or bool(state.executor)
            for note in self._notes(state) if started else ():
                self.progress.say(note)
            for line in self._warnings(state):
                log.warning(line)
            self.progress.update(state.round)
            history = self.ledger.history
            if self.folder is not None:
                forked = tally.forked is not None
                self.folder.write_beginning(self.federation, forked, self._settings(), started, history)
            self.chronicle = self.ledger.driver.chronicle
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
        yield from opening(self.ledger.driver, state, self.rounds, self.config or {})
        here = self.federation.clients.data is not None
        if here and "auto" in self.federation.described().values():
            yield "engine: choosing what is fastest on this machine"
        yield from self.ledger.driver.prepare(self.rounds - state.round, state)

    def _warnings(self, state: State) -> Iterator[str]:
        """Lines on what this run may not learn, will not reach and does not protect."""
        yield from doubtful(self.federation)
        facts = self.ledger.driver.facts()
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
        ledger = self.ledger
        if ledger.tally.evaluation_due:
            self._evaluate(live)
            ledger.save()
        stop.keep_time()
        while ledger.state.round < self.end and not (stop or self.over or live.stopped):
            began = time.perf_counter()
            try:
                after, report = ledger.driver.round(ledger.state)
            except Ended:
                self.over = True
                if ledger.unevaluated(ledger.state):
                    self._evaluate(live)
            else:
                self._finish(after, report, began, live)
            stop.keep_time()
        return self._end(stop.number, live.stopped)

    def _settings(self) -> dict[str, Any]:
        """What config.toml holds: the experiment, or what is known of a run whose federation was made in Python."""
        made = {"built_by": "", "checkpoint": asdict(self.checkpoint), "trajectory": asdict(self.trajectory)}
        return {**(made if self.config is None else self.config), "rounds": self.rounds}

    def _end(self, signal: int, stopped: str) -> Result:
        if self.ledger.unsaved:
            self.ledger.save()
        state = self.ledger.driver.saved(self.ledger.state)
        tally = self.ledger.tally
        history = self.ledger.history
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
        before = self.ledger.tally
        tally = replace(
            before,
            samples=before.samples + report.samples,
            training_seconds=before.training_seconds + time.perf_counter() - began,
            evaluation_due=self.federation.evaluation.due(state.round, self.rounds),
        )
        self.sums.observe(state, report.moved)
        self._report(report)
        self._hold(state, tally)
        values = self._evaluate(live) if tally.evaluation_due else None
        seconds = before.seconds + time.perf_counter() - began
        self._hold(self.ledger.state, replace(self.ledger.tally, seconds=seconds))
        if self.checkpoint.due(state.round, self.rounds):
            self.ledger.save()
        self.progress.update(state.round, values)
        for callback in self.callbacks:
            callback.round(live, report)

    def _evaluate(self, live: LiveRun) -> dict[str, str]:
        """Evaluate all models of the last round, and record and learn from it; the value of each model as text."""
        state = self.ledger.state
        with self.progress.evaluation() as each:
            scores = self.federation.evaluate(state, each)
            best = best_after(self.ledger.tally.best, self.federation, state, scores)
            state, decisions = self.federation.learn(state, scores)
        data = self.federation.clients.data
        self.ledger.clients = content(scores, () if data is None else data.client_names)
        records: list[Record] = [*scores, *decisions]
        privacy = self.federation.privacy(state)
        if privacy is not None:
            records.append(PrivacySpent(round=state.round, **asdict(privacy)))
        if self.chronicle is not None:
            records = self.chronicle.records(state.round, state.w, records)
        self.ledger.record(records)
        self._hold(state, replace(self.ledger.tally, best=best, evaluation_due=False))
        for callback in self.callbacks:
            callback.evaluation(live, scores)
        criterion = self.federation.goal.criterion
        curves = History(records).curves(criterion)
        return {model: criterion.text(points[state.round]) for model, points in curves.models.items()}

    def _report(self, outcome: RoundReport) -> None:
        """Report problems of a round in the metrics and in the log.

        The log leaves out problems of the round before. Clients are told again when others have joined them, and not
        when each round has others: then they are missing by chance.
        """
        round = outcome.round
        last = self.last_report
        joined = {*outcome.refused} > {*(last.refused if last else ())}
        joined |= {*outcome.missing} > {*(last.missing if last else ())}
        if joined or (outcome.skipped and outcome.skipped != (last.skipped if last else "")):
            for line in outcome.lines():
                log.warning("round %d: %s", round, line)
        if outcome.refused or outcome.missing or (outcome.skipped and len(outcome.clients)):
            problems = Problems(round=round, refused=outcome.refused, missing=outcome.missing, skipped=outcome.skipped)
            self.ledger.record([problems])
        self.last_report = outcome

    def _hold(self, state: State, tally: Tally) -> None:
        """Note that the state and its tally are complete, with all rows so far."""
        self.ledger.hold(state, tally)
        if self.live is not None:
            self.live.state = self.ledger.state
            self.live.tally = self.ledger.tally

    def _rescue(self, error: BaseException) -> None:
        """Save the last complete state before an exception ends the session, and note how to resume."""
        if self.folder is not None:
            self.ledger.rescue(error)
            error.add_note(f"go on with: {self._command()}")

    def _command(self) -> str:
        """How to go on with the run: a command, or a call if its federation was made in Python."""
        if self.config is not None and self.config.get("built_by") != "":
            if self.federation.clients.data is None:
                return "the fedsash flower serve that began it"
            return shlex.join(["fedsash", "resume", str(self.place)])
        return f"fedsash.resume(federation, rounds, {str(self.place)!r})"
