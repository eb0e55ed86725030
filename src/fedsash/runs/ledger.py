"""The ledger of a session: its run's rows and states, in memory and in the run's folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..evaluation import Decision, History, Record, Score
from ..server.broadcast import Choice
from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import RunError, check, one_line, some
from ..settings.fingerprint import differences
from ..vector.saved import cut, place, prune, saved_rounds
from . import checkpoints
from .client_results import CLIENTS
from .driver import Driver
from .folder import RunFolder
from .forks import ANEW, Fork, check_kept, other_samples, renamed, sources, taken_over
from .records import Mark, Records, mark
from .running_sums import NAME as SUMS
from .running_sums import Bookkeeper
from .settings import Checkpoint
from .summaries import goal_of, run_table
from .tally import Best, Tally, best_by

log = logging.getLogger("fedsash")


@dataclass
class Ledger:
    """What is known and kept of a run of so many `rounds`.

    `history` are all records, and `mark` says which of them a tally counts. `state` and `tally` are those of the last
    complete round, and `saved` the ones that were saved last. `clients` are the clients' own results since then.
    """

    driver: Driver
    rounds: int
    folder: RunFolder | None
    checkpoint: Checkpoint
    sums: Bookkeeper
    history: History = field(default_factory=History)
    mark: Mark = (0, 0)
    state: State = field(init=False)
    tally: Tally = field(init=False)
    saved: tuple[State, Tally] | None = None
    clients: dict[str, Any] = field(default_factory=dict)

    @property
    def federation(self) -> Federation:
        """The federation whose models the run trains, with the engine with which it began."""
        return self.driver.federation

    @property
    def unsaved(self) -> bool:
        """Whether the state and the tally are not those that were saved last."""
        return self.saved is None or self.saved[0] is not self.state or self.saved[1] is not self.tally

    def begin(self, fork: Fork | None) -> None:
        """Begin with a new state, or with the state of another run and that run's metrics so far."""
        check(fork is None or isinstance(fork, Fork), "fork", fork, 'must be a Fork, such as Fork("runs/a", 225)')
        if self.folder is not None:
            self.folder.check_new()
            self.folder.clear()
        self.sums.cut()  # files of a run that was killed before it wrote its metrics
        if fork is None:
            self.hold(self._new(), Tally())
        else:
            self._take(fork)

    def reopen(self) -> None:
        """Go on from the newest readable state of the run in the folder. Everything after it is removed.

        The driver then has the engine with which the run began.
        """
        assert self.folder is not None
        self.folder.check_begun()  # it may have been removed before it was held
        self.folder.clear()
        begin = partial(self._begin, {})
        state, tally, notes = checkpoints.load_newest(self.folder.states, self._new(), self._check_same, begin)
        for note in notes:
            log.warning(note)
        right = f"must be at least the {state.round} that the run has: rounds count from its beginning"
        check(self.rounds >= state.round, "rounds", self.rounds, right)
        self._check_rule(self.folder, tally.best)
        self.sums.fits(state)
        self.folder.records.cut(state.round, tally.records if state.round else None)
        cut(self.folder.states, state.round)
        prune(self.folder.states, self.checkpoint.keep)  # a kill may have come before
        self.sums.cut(state)
        state.clients.oldest = min(saved_rounds(self.folder.states), default=0)
        self.history = self.folder.records.load()
        self.mark = mark(self.history)
        self.driver = self.folder.settled(self.driver)
        self.hold(state, self._due(tally, state))
        if saved_rounds(self.folder.states):
            self.saved = self.state, self.tally

    def record(self, records: Sequence[Record]) -> None:
        """Add records."""
        if self.folder is not None:
            self.folder.records.append(records)
        self.history.add(records)
        self.mark = mark(records, self.mark)

    def hold(self, state: State, tally: Tally) -> None:
        """Note that the state and its tally are complete, with all rows so far."""
        if tally.records != self.mark:
            tally = replace(tally, records=self.mark)
        self.state = state
        self.tally = tally

    def save(self) -> None:
        """Save the state and the tally, unless the run has no folder."""
        if self.folder is None:
            return
        keep = self.checkpoint.keep
        self.state.clients.oldest = self.folder.save(self.driver, self.state, self.tally, keep, self.clients)
        self.saved = self.state, self.tally
        self.clients = {}

    def rescue(self, error: BaseException) -> None:
        """Save the last complete state before an exception ends the session, unless the next round has spent it."""
        if not self.unsaved or self.state.spent:
            return
        try:
            self.save()
        except Exception as failure:
            back = f"so resume goes back to round {self.saved[0].round if self.saved else 0}"
            error.add_note(f"the state after round {self.state.round} could not be saved, {back}: {one_line(failure)}")

    @property
    def _rule(self) -> str:
        """By what the best model of each name is kept, as in `Best.by`."""
        return best_by(self.federation.evaluation, self.federation.goal.criterion)

    def _check_rule(self, folder: RunFolder, best: Mapping[str, Best]) -> None:
        """Raise `RunError` if the run has chosen its `best` models by another rule."""
        rules = {one.by for one in best.values()}
        with suppress(RunError):  # a damaged goal.json is written again
            criterion, before = goal_of(folder.path)
            if before.best_on != self.federation.evaluation.best_on and folder.records.load().evaluated:
                rules |= {best_by(before, criterion)}
        if others := rules - {self._rule}:
            kept = f"{folder.path} has kept its best models by {', '.join(sorted(others))}"
            raise RunError(f"{kept}: evaluation.metric and evaluation.best_on must stay. To change them, fork")

    def unevaluated(self, state: State) -> bool:
        """Whether the models of this state were not evaluated, though those of a run's end are."""
        rounds = self.history.evaluated
        clients = self.federation.clients
        evaluated = bool(rounds) or clients.held or clients.problem.test is not None
        return state.round > 0 and evaluated and state.round not in rounds

    def _due(self, tally: Tally, state: State) -> Tally:
        """The tally of a saved state, whose evaluation is due also if the run now ends with it."""
        due = tally.evaluation_due or (state.round == self.rounds and self.unevaluated(state))
        return replace(tally, evaluation_due=due)

    def _check_same(self, path: Path) -> None:
        """Raise `RunError` if the state at `path` is of another experiment."""
        here = self.driver.fingerprint
        there = checkpoints.fingerprint(path)
        if other := self._differences(here, there, path):
            run = f"{path.parent.parent} holds a run of another experiment"
            raise RunError(f"{run}: {'; '.join(other)}. To change it on purpose, fork{_seed_hint(here, there)}")

    def _differences(self, here: Mapping[str, str], there: Mapping[str, str], path: Path) -> list[str]:
        """In what the run of a saved state is another one. Of clients on nodes it has those with other samples."""
        ours = here.get("clients")
        theirs = there.get("clients")
        if None in (ours, theirs) or ours == theirs:
            return differences(here, there)
        old = checkpoints.sizes(path).tolist()
        new = self.federation.clients.sizes
        if len(old) != len(new):
            return differences(here, there)
        pairs = enumerate(zip(old, new.tolist(), strict=True))
        changed = [f"client {i} has {now} samples instead of {before}" for i, (before, now) in pairs if before != now]
        return [some(changed), *differences({n: own for n, own in here.items() if n != "clients"}, there)]

    def _begin(self, ours: Mapping[str, str], state: State, names: Iterable[str]) -> None:
        """Let averages begin at the model of a saved state that lacks them; `ours` are their names if others differ."""
        own = {name: ours.get(name, name) for name in names}
        for name in own.keys() - {SUMS}:
            state.averages[name] = self.federation.observers.begun(own[name], state.w)

    def _new(self) -> State:
        """The state before the first round."""
        folder = None if self.folder is None else self.folder.path
        state = self.sums.start(self.federation.start(folder))
        state.clients.lineage = ((0, uuid4().hex),)
        return state

    def _take(self, fork: Fork) -> None:
        """Begin with another run's state. The history begins with its records of the models that we have, too.

        The earlier states that must be kept for ever are copied as well.
        """
        source = Path(fork.folder)
        self._check_fork(source, fork.round)
        its = checkpoints.fingerprint(place(source / "state", fork.round))
        start = self._new()
        names = sources(fork, start.averages, self.driver.fingerprint, its)
        ours = {theirs: name for name, theirs in names.items()} | {"model": "model"}
        history = Records(source).load().until(fork.round)
        other = other_samples(self.driver.fingerprint, its)
        self.history = History(_taken_over(history, ours, scores=not other))
        if self.folder is not None:
            cut(self.folder.states, -1)  # files of a run that was killed before it wrote its metrics
        self.clients = _clients(source / CLIENTS, fork.round, ours)
        own = fork.round, start.clients.lineage[0][1]
        kept = (r for r in saved_rounds(source / "state") if r in self.checkpoint.keep and r < fork.round)
        for round in (*kept, fork.round):
            path = place(source / "state", round)
            state, tally = checkpoints.load_run(path, renamed(self._new(), names), partial(self._begin, ours))
            state = renamed(state, ours)
            self._check_forked(state, checkpoints.fingerprint(path))
            state.clients.lineage += (own,)
            state.choice = self._choice(state, names, its)
            self.mark = mark(self.history.until(round))
            best = {ours.get(name, name): one for name, one in tally.best.items()}
            best = {name: one for name, one in best.items() if one.by == self._rule and not other}
            self.hold(state, self._due(replace(tally, forked=fork.round, best=best), state))
            self.save()
        self.sums.take(source, self.state)
        for line in taken_over(self.driver.fingerprint, its, self.state):
            log.warning(line)
        if other:
            log.warning(
                "clients have other samples than before the fork (%s): models may be tested on some of those on "
                "which they were trained then, and earlier evaluations do not count",
                "; ".join(other),
            )

    def _choice(self, state: State, names: Mapping[str, str], its: Mapping[str, str]) -> Choice | None:
        """What an adaptive broadcast has decided in a fork: nothing yet if it compares other averages, or by another
        metric, than the source did, whose fingerprint is `its`."""
        broadcast = self.federation.broadcast
        metric = "evaluation.metric"
        if state.choice is None or broadcast is None:
            return None
        anew = any(names[name].endswith(ANEW) for name in broadcast.averages)
        return broadcast.first() if anew or self.driver.fingerprint[metric] != its.get(metric) else state.choice

    def _check_fork(self, source: Path, round: int) -> None:
        """Raise an error unless this run can begin at this round of the run in the folder `source`."""
        saved = saved_rounds(source / "state")
        if not saved and not Records(source).path.exists():
            raise RunError(f"{source} holds no run")
        if round not in saved:
            there = ", ".join(map(str, saved)) or "none"
            raise RunError(f"{source} has no state of round {round}; saved are: {there} (see checkpoint.keep)")
        check(self.rounds >= round, "rounds", self.rounds, f"must be at least the {round} of the fork's state")
        self.sums.check(source, round)

    def _check_forked(self, state: State, there: Mapping[str, str]) -> None:
        """Raise an error unless another run's state can be one of this run. Its fingerprint is `there`."""
        self.federation.aggregation.check_composed(self.federation.fingerprint, there)
        check_kept(self.driver.fingerprint, there)
        other = other_samples(self.driver.fingerprint, there)
        if other and state.client_state:
            raise RunError(f"a fork must keep the samples from which clients remember something: {'; '.join(other)}")


def _clients(file: Path, round: int, ours: Mapping[str, str]) -> dict[str, Any]:
    """The clients' results after a round in another run's file, of the models that are `ours`, under our names."""
    found = run_table(file) or {}
    if found.get("round") != round:
        return {}
    by_split = found["splits"].items()
    splits = {split: {ours[name]: each for name, each in of.items() if name in ours} for split, of in by_split}
    return {**found, "splits": splits}


def _taken_over(history: History, ours: Mapping[str, str], scores: bool) -> Iterator[Record]:
    """The records of the models that are `ours`, under our names; without the `scores` if samples are others now."""
    for record in history:
        if isinstance(record, Score):
            if scores and record.model in ours:
                yield replace(record, model=ours[record.model])
        elif isinstance(record, Decision):
            if record.average in ours:
                yield replace(record, average=ours[record.average])
        else:
            yield record


def _seed_hint(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What to do about a model that differs in nothing but its numbers; empty if that is not so."""
    ours = here.get("model", "")
    theirs = there.get("model", "")
    alike = ours != theirs and ours.rpartition(", ")[0] == theirs.rpartition(", ")[0]
    return "; if only its first weights differ, seed PyTorch before you make it: torch.manual_seed" if alike else ""
