"""A session: the rounds of a run in one process, and the files that it writes."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...basics.errors import RunError, check, one_line
from ...basics.fingerprint import differences
from ...basics.paths import check_folder
from ...basics.saved import cut, place, prune, saved_rounds
from ...evaluation import Curves
from ...exchange import Chronicle, Ended, RoundReport
from ...state import State
from .. import checkpoints
from ..client_results import content
from ..progress import Progress
from ..records import Mark, Records, mark
from .arguments import check_arguments, number_of
from .beyond import beyond
from .callback import Callback, LiveRun
from .driver import Driver
from .folder import RunFolder
from .forks import Fork, check_sharing, renamed
from .interrupts import Stop, stop_flag
from .opening import opening
from .result import Result
from .running_sums import NEVER, Bookkeeper, RunningSums
from .settings import Checkpoint
from .summary import summary
from .unprotected import unprotected

log = logging.getLogger("fedsash")


@dataclass
class Session:
    """One session of a run: from a state to the run's end, or to a request to stop.

    `state` is the last complete state. If an exception ends the session, it is saved, unless the next round has spent
    it. `saved` is the state that was saved last, and `clients` are the clients' own results since then.
    """

    federation: Driver
    rounds: int
    out: Path | str | None
    checkpoint: Checkpoint
    shown: bool
    callbacks: Sequence[Callback]
    config: Mapping[str, Any] | None
    until: int | None
    trajectory: RunningSums = NEVER

    def __post_init__(self) -> None:
        check_arguments(self.federation, self.checkpoint, self.trajectory, self.callbacks, self.shown)
        self.rounds = number_of(self.rounds)
        self.end = self.rounds if self.until is None else min(self.until, self.rounds)
        self.progress = Progress(self.rounds, self.shown, self._evaluations)
        self.folder = None if self.out is None else RunFolder(self.out)
        self.place = None if self.folder is None else self.folder.path
        if self.place is not None:
            check_folder(self.place)
        self.sums = Bookkeeper(self.trajectory, self.place)
        self.history: list[dict[str, Any]] = []
        self.mark: Mark = (0, 0)
        self.wrong = (False, False, "")
        self.over = False
        self.live: LiveRun | None = None
        self.state: State | None = None
        self.saved: State | None = None
        self.result: Result | None = None
        self.clients: dict[str, Any] = {}
        self.chronicle: Chronicle | None = None

    def run(self, fork: Fork | None) -> Result:
        """Begin the run and train it. Nobody else works in its folder meanwhile."""
        with nullcontext() if self.folder is None else self.folder.held():
            return self.train(self.begin(fork), resumed=False)

    def resume(self) -> Result:
        """Go on with the run in the folder. Nobody else works there meanwhile."""
        assert self.folder is not None
        self.folder.check_begun()
        with self.folder.held():
            return self.train(self.reopen(), resumed=True)

    def begin(self, fork: Fork | None) -> State:
        """The first state: a new one, or the state of another run, with that run's metrics so far."""
        check(fork is None or isinstance(fork, Fork), "fork", fork, 'must be a Fork, such as Fork("runs/a", 225)')
        if self.folder is not None:
            self.folder.check_new()
            self.folder.clear()
        self.sums.cut()  # files of a run that was killed before it wrote its metrics
        state = replace(self.sums.start(self.federation.start(self.place)), lineage=((0, uuid4().hex),))
        return state if fork is None else self._take(fork, state)

    def _take(self, fork: Fork, state: State) -> State:
        """Fill the start with another run's state. The history begins with its records of the models that we have, too.

        The earlier states that must be kept for ever are copied as well.
        """
        source = Path(fork.folder)
        saved = saved_rounds(source / "state")
        if fork.round not in saved:
            there = ", ".join(map(str, saved)) or "none"
            raise RunError(f"{source} has no state of round {fork.round}; saved are: {there} (see checkpoint.keep)")
        right = f"must be at least the {fork.round} of the fork's state"
        check(self.rounds >= fork.round, "rounds", self.rounds, right)
        self.sums.check(source, fork.round)
        own = fork.round, state.lineage[0][1]
        names = {name: fork.names.get(name, name) for name in state.averages}
        ours = {theirs: name for name, theirs in names.items()} | {"model": "model"}
        rows = [row for row in Records(source).load() if row["round"] <= fork.round]
        self.history = [row | {"model": ours[row["model"]]} for row in rows if row["model"] in ours]
        if self.folder is not None:
            cut(self.folder.states, -1)  # files of a run that was killed before it wrote its metrics
        for round in [*(r for r in saved if r in self.checkpoint.keep and r < fork.round), fork.round]:
            loaded = checkpoints.load(place(source / "state", round), renamed(state, names))
            self.federation.privacy(loaded)  # raises before anything is written if the rounds can't be added up
            check_sharing(self.federation.fingerprint, loaded.fingerprint)
            state = replace(renamed(loaded, ours), forked=fork.round, lineage=(*loaded.lineage, own))
            self.mark = mark([row for row in self.history if row["round"] <= round])
            self._hold(state)
            self._save(state)
        self.sums.take(source, state)
        return state

    def reopen(self) -> State:
        """The newest readable state of the run in the folder. Everything after it is removed."""
        assert self.folder is not None
        self.folder.check_begun()  # it may have been removed before it was held
        self.folder.clear()
        fresh = replace(self.sums.start(self.federation.start(self.place)), lineage=((0, uuid4().hex),))
        state, notes = checkpoints.load_newest(self.folder.states, fresh)
        for note in notes:
            log.warning(note)
        if other := differences(self.federation.fingerprint, state.fingerprint):
            lines = "; ".join(other)
            raise RunError(f"{self.place} holds a run of another experiment: {lines}. To change it on purpose, fork")
        self.folder.records.cut(state.round, state.records if state.round else None)
        cut(self.folder.states, state.round)
        prune(self.folder.states, self.checkpoint.keep)  # a kill may have come before
        self.sums.cut(state)
        state.oldest = min(saved_rounds(self.folder.states), default=0)
        self.history = self.folder.records.load()
        self.mark = mark(self.history)
        self.saved = state if saved_rounds(self.folder.states) else None
        self.federation = self.folder.settled(self.federation)
        return state

    def train(self, state: State, resumed: bool) -> Result:
        """Train until the end, or until a signal or a callback asks to stop: then the current round is finished.

        If an exception ends the training, the last complete state is saved, and a note of the exception says how to
        resume.
        """
        with ExitStack() as stack:
            stack.enter_context(self.federation)
            stop = stack.enter_context(stop_flag(self.progress.say))
            stack.enter_context(self.progress)
            # an executor with a saved state has a chronicle
            started = state.round < self.end or state.evaluation_due or bool(state.executor)
            for note in self._notes(state) if started else ():
                self.progress.say(note)
            lines = beyond(self.federation, self.checkpoint, self.rounds), unprotected(self.federation, state)
            for line in chain(*lines):
                log.warning(line)
            self.progress.update(state.round)
            if self.folder is not None:
                self.folder.write_beginning(self.federation, state, self._settings(), started, self.history)
            self.chronicle = self.federation.chronicle
            self.live = LiveRun(
                self.federation, state, self.rounds, self.place, self.config or {}, self.history, resumed
            )
            self._hold(state)
            with ExitStack() as called:
                try:
                    self._begin(self.live, called)
                    return self._train(state, stop, self.live)
                except BaseException as error:
                    self._rescue(error)
                    raise

    def _notes(self, state: State) -> Iterator[str]:
        """Lines that say what is trained, then those of the engine, which is started."""
        yield from opening(self.federation, state, self.rounds, self.config or {})
        if "auto" in self.federation.described().values():
            yield "engine: looking for what is fastest on this machine"
        yield from self.federation.prepare(self.rounds - state.round, state)

    def _begin(self, live: LiveRun, called: ExitStack) -> None:
        """Let all callbacks begin, and end with the session, also after an exception."""
        for callback in self.callbacks:
            callback.begin(live)
            called.callback(lambda callback: callback.end(live, self.result), callback)

    def _train(self, state: State, stop: Stop, live: LiveRun) -> Result:
        if state.evaluation_due:
            state, _ = self._evaluate(state, live)
            self._save(state)
        while state.round < self.end and not (stop or self.over or live.stopped):
            state = self._round(state, live)
        return self._end(state, stop.number, live.stopped)

    def _evaluations(self, round: int) -> int:
        return self.federation.evaluation.left(round, self.rounds)

    def _settings(self) -> dict[str, Any]:
        """What config.toml holds: the experiment, or what is known of a run whose federation was made in Python."""
        made = {"built_by": "", "checkpoint": asdict(self.checkpoint), "trajectory": asdict(self.trajectory)}
        return {**(made if self.config is None else self.config), "rounds": self.rounds}

    def _end(self, state: State, signal: int, stopped: str) -> Result:
        if state is not self.saved:
            self._save(state)
        state = self.federation.saved(state)
        left = state.round < self.rounds and not self.over
        numbers = summary(self.federation, state, self.history, self.chronicle, stopped if left else "")
        interrupted = left and not stopped
        self.result = Result(self.history, numbers, state, self.federation, self.place, interrupted, signal)
        if self.folder is not None:
            self.folder.write_end(self.result)
        return self.result

    def _round(self, state: State, live: LiveRun) -> State:
        began = time.perf_counter()
        try:
            state, outcome = self.federation.round(state)
        except Ended:
            self.over = True
            return state
        ended = time.perf_counter()
        state.samples += outcome.samples
        state.training_seconds += ended - began
        state.evaluation_due = self.federation.evaluation.due(state.round, self.rounds)
        self.sums.observe(state, outcome.moved)
        self._report(outcome)
        self._hold(state)
        values = None
        if state.evaluation_due:
            state, values = self._evaluate(state, live)
        state.seconds += time.perf_counter() - began
        if self.checkpoint.due(state.round, self.rounds):
            self._save(state)
        self.progress.update(state.round, values)
        for callback in self.callbacks:
            callback.round(live, outcome)
        return state

    def _evaluate(self, state: State, live: LiveRun) -> tuple[State, dict[str, str]]:
        """The state after its evaluation, and the value of each model as text."""
        with self.progress.evaluation() as each:
            metrics = self.federation.evaluate(state, each)
            state, more = self.federation.learn(state, metrics)
        self.clients = content(metrics)
        metrics += more
        rows = [m.row() for m in metrics]
        if (spent := self.federation.privacy(state)) is not None:
            rows.append({"round": state.round, "model": "model", "split": "privacy"} | asdict(spent))
        self._record(rows if self.chronicle is None else self.chronicle.rows(state.round, state.w, rows))
        state = replace(state, evaluation_due=False)
        self._hold(state)
        for callback in self.callbacks:
            callback.evaluation(live, metrics)
        criterion = self.federation.goal.criterion
        curves = Curves.of(rows, criterion)
        return state, {model: criterion.text(points[state.round]) for model, points in curves.models.items()}

    def _report(self, outcome: RoundReport) -> None:
        """Report problems of a round in the metrics and in the log. The log leaves out problems of the round before."""
        round, wrong = outcome.round, (bool(outcome.refused), bool(outcome.missing), outcome.skipped)
        if wrong != self.wrong:
            for line in outcome.lines():
                log.warning("round %d: %s", round, line)
        if outcome.refused or outcome.missing or (outcome.skipped and len(outcome.clients)):
            guard: dict[str, Any] = {"round": round, "model": "model", "split": "guard", "refused": outcome.refused}
            missing = {"missing": {str(client): why for client, why in outcome.missing.items()}}
            self._record([guard | (missing if outcome.missing else {}) | {"skipped": outcome.skipped}])
        self.wrong = wrong

    def _record(self, rows: list[dict[str, Any]]) -> None:
        if self.folder is not None:
            self.folder.records.append(rows)
        self.history += rows
        self.mark = mark(rows, self.mark)

    def _hold(self, state: State) -> None:
        """Note that the state is complete, with all rows so far."""
        state.records = self.mark
        self.state = state
        if self.live is not None:
            self.live.state = state

    def _save(self, state: State) -> None:
        if self.folder is not None:
            state.oldest = self.folder.save(self.federation.saved(state), self.checkpoint.keep, self.clients)
            self.saved, self.clients = state, {}

    def _rescue(self, error: BaseException) -> None:
        """Save the last complete state before an exception ends the session, and note how to resume."""
        if self.folder is None or self.state is None:
            return
        try:
            if self.state is not self.saved and not self.state.spent:
                self._save(self.state)
        except Exception as failure:
            error.add_note(f"the state after round {self.state.round} could not be saved: {one_line(failure)}")
        error.add_note(f"go on with: {self._command()}")

    def _command(self) -> str:
        """How to go on with the run: a command, or a call if its federation was made in Python."""
        if self.config is not None:
            return shlex.join(["fedsash", "resume", str(self.place)])
        return f"fedsash.resume(federation, rounds, {str(self.place)!r})"
