"""The rows and states of a session's run, in memory and in the run's folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..client.store import Lineage, run_and_session
from ..evaluation import OVER_CLIENTS, Decision, History, Record, Score
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
from .running_sums import SumRecorder
from .settings import Checkpoint
from .summaries import goal_of, run_table
from .tally import Best, Tally, best_by
from .warned import drawn_again

log = logging.getLogger("fedsash")


@dataclass
class RunRecorder:
    """Records a run of so many `rounds`: its rows, its states and its counts.

    `history` are all records, and `mark` says which of them a tally counts. `state` and `tally` are those of the last
    complete round, and `saved` the ones that were saved last. `clients` are the clients' own results since then.
    """

    driver: Driver
    rounds: int
    folder: RunFolder | None
    checkpoint: Checkpoint
    sums: SumRecorder
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
            self.note(self._new_state(), Tally())
        else:
            self._begin_fork(fork)

    def reopen(self) -> None:
        """Go on from the newest readable state of the run in the folder. Everything after it is removed.

        The driver then has the engine with which the run began.
        """
        assert self.folder is not None
        self.folder.check_begun()  # it may have been removed before it was locked
        self.folder.clear()
        begin = partial(self._begin_averages, {})
        state, tally, notes = checkpoints.load_newest(self.folder.states, self._new_state(), self._check_same, begin)
        for note in notes:
            log.warning(note)
        requirement = f"must be at least the {state.round} that the run has: rounds count from its beginning"
        check(self.rounds >= state.round, "rounds", self.rounds, requirement)
        self._check_rule(self.folder, tally.best)
        self._check_metric(self.folder, state.round)
        self.sums.check_state(state)
        self.folder.records.cut(state.round, tally.records if state.round else None)
        cut(self.folder.states, state.round)
        prune(self.folder.states, self.checkpoint.keep)  # a kill may have come before
        self.sums.cut(state)
        state.clients.oldest = min(saved_rounds(self.folder.states), default=0)
        self.history = self.folder.records.load()
        self.mark = mark(self.history)
        self.driver = self.folder.settled(self.driver)
        if self.federation.clients.remember:
            state.clients.lineage = self._with_new_session(self.folder, state)
        self.note(state, self._with_evaluation_due(tally, state))
        if saved_rounds(self.folder.states):
            self.saved = self.state, self.tally

    def _with_new_session(self, folder: RunFolder, state: State) -> Lineage:
        """The lineage of a state from which a session goes on whose clients keep their state themselves.

        They may still be at work for a server that was killed. What they do for it belongs to its session, and does not
        mix with what they do for this one.
        """
        _, name = state.clients.lineage[-1]
        run, session = run_and_session(name)
        return (*state.clients.lineage, (state.round, f"{run}.{folder.new_session(session)}"))

    def record(self, records: Sequence[Record]) -> None:
        """Add records."""
        if self.folder is not None:
            self.folder.records.append(records)
        self.history.add(records)
        self.mark = mark(records, self.mark)

    def note(self, state: State, tally: Tally) -> None:
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
            saved_round = 0
            if self.saved is not None:
                state, _ = self.saved
                saved_round = state.round
            error.add_note(
                f"the state after round {self.state.round} could not be saved, so resume goes back to round "
                f"{saved_round}: {one_line(failure)}"
            )

    @property
    def _rule(self) -> str:
        """By what the best model of each name is kept, as in `Best.by`."""
        return best_by(self.federation.evaluation, self.federation.goal.criterion)

    def _check_rule(self, folder: RunFolder, best: Mapping[str, Best]) -> None:
        """Raise `RunError` if the run has chosen its `best` models by another rule."""
        rules = {model.by for model in best.values()}
        with suppress(RunError):  # a damaged goal.json is written again
            criterion, before = goal_of(folder.path)
            if before.best_on != self.federation.evaluation.best_on and folder.records.load().evaluated:
                rules.add(best_by(before, criterion))
        rules.discard(self._rule)
        if rules:
            raise RunError(
                f"{folder.path} has kept its best models by {', '.join(sorted(rules))}: evaluation.metric and "
                "evaluation.best_on must stay. To change them, fork"
            )

    def _check_metric(self, folder: RunFolder, round: int) -> None:
        """Raise `RunError` if the run has numbers over clients up to this round, and they are of another metric."""
        metric = _metric_of(folder.path)
        if metric in ("", self.federation.goal.criterion.name):
            return
        if any(OVER_CLIENTS[0] in score.more for score in folder.records.load().until(round).scores()):
            requirement = "evaluation.metric must stay. To change it, fork"
            raise RunError(f"{folder.path} has the {metric} over its clients: {requirement}")

    def unevaluated(self, state: State) -> bool:
        """Whether the models of this state were not evaluated, though those of a run's end are."""
        rounds = self.history.evaluated
        clients = self.federation.clients
        evaluated = bool(rounds) or clients.held or clients.problem.test is not None
        return state.round > 0 and evaluated and state.round not in rounds

    def _with_evaluation_due(self, tally: Tally, state: State) -> Tally:
        """The tally of a saved state, whose evaluation is due also if the run now ends with it."""
        due = tally.evaluation_due or (state.round == self.rounds and self.unevaluated(state))
        return replace(tally, evaluation_due=due)

    def _check_same(self, path: Path) -> None:
        """Raise `RunError` if the state at `path` is of another experiment."""
        here = self.driver.fingerprint
        there = checkpoints.fingerprint(path)
        if sentences := self._differences(here, there, path):
            raise RunError(
                f"{path.parent.parent} holds a run of another experiment: {'; '.join(sentences)}. To change it on "
                f"purpose, fork{_seed_hint(here, there)}"
            )

    def _differences(self, here: Mapping[str, str], there: Mapping[str, str], path: Path) -> list[str]:
        """How the run of a saved state differs. Of clients on nodes, it names those with other samples."""
        if "clients" not in here or "clients" not in there or here["clients"] == there["clients"]:
            return differences(here, there)
        old_sizes = checkpoints.sizes(path).tolist()
        new_sizes = self.federation.clients.sizes.tolist()
        if len(old_sizes) != len(new_sizes):
            return differences(here, there)
        changed = []
        for client, (old, new) in enumerate(zip(old_sizes, new_sizes, strict=True)):
            if old != new:
                changed.append(f"client {client} has {new} samples instead of {old}")
        others = {name: text for name, text in here.items() if name != "clients"}
        return [some(changed), *differences(others, there)]

    def _begin_averages(self, our_names: Mapping[str, str], state: State, names: Iterable[str]) -> None:
        """Let the averages of these `names`, which a saved state lacks, begin at its model.

        `our_names` has the names of a fork's averages in this run, where they differ.
        """
        for name in names:
            if name != SUMS:
                our_name = our_names.get(name, name)
                state.averages[name] = self.federation.observers.begun(our_name, state.w)

    def _new_state(self) -> State:
        """The state before the first round."""
        folder = None if self.folder is None else self.folder.path
        state = self.sums.start(self.federation.start(folder))
        state.clients.lineage = ((0, uuid4().hex),)
        return state

    def _begin_fork(self, fork: Fork) -> None:
        """Begin with another run's state. The history begins with its records of the models that we have, too.

        The earlier states that must be kept for ever are copied as well.
        """
        source = Path(fork.folder)
        source_states = source / "state"
        self._check_fork(source, fork.round)
        here = self.driver.fingerprint
        there = checkpoints.fingerprint(place(source_states, fork.round))
        start = self._new_state()
        self._check_members(source, fork.round)
        source_names = sources(fork, start.averages, here, there)
        our_names = {source_name: name for name, source_name in source_names.items()}
        our_names["model"] = "model"
        sample_differences = other_samples(here, there)
        same_metric = _metric_of(source) in ("", self.federation.goal.criterion.name)
        history = Records(source).load().until(fork.round)
        if not same_metric:
            history = _without_more(history)
        self.history = History(_taken_over(history, our_names, scores=not sample_differences))
        if self.folder is not None:
            cut(self.folder.states, -1)  # files of a run that was killed before it wrote its metrics
        if same_metric:
            self.clients = _client_results(source / CLIENTS, fork.round, our_names)
        _, run_id = start.clients.lineage[0]
        kept = [round for round in saved_rounds(source_states) if round in self.checkpoint.keep and round < fork.round]
        for round in [*kept, fork.round]:
            path = place(source_states, round)
            # The averages have the source's names while its state is loaded, and ours from then on.
            empty = renamed(self._new_state(), source_names)
            state, tally = checkpoints.load_run(path, empty, partial(self._begin_averages, our_names))
            state = renamed(state, our_names)
            self._check_forked(state, checkpoints.fingerprint(path))
            state.clients.lineage += ((fork.round, run_id),)
            state.choice = self._choice(state, source_names, there)
            self.mark = mark(self.history.until(round))
            best = {}
            if not sample_differences:
                best = self._best_taken_over(tally.best, our_names)
            self.note(state, self._with_evaluation_due(replace(tally, forked=fork.round, best=best), state))
            if self.folder is not None:
                self.folder.claim(self.federation)
            self.save()
        self.sums.take(source, self.state)
        for line in [*taken_over(here, there, self.state), *drawn_again(self.federation, self.state, fork, there)]:
            log.warning(line)
        if sample_differences:
            log.warning(
                "clients have other samples than before the fork (%s): models may be tested on some of those on "
                "which they were trained then, and earlier evaluations do not count",
                "; ".join(sample_differences),
            )

    def _best_taken_over(self, best: Mapping[str, Best], our_names: Mapping[str, str]) -> dict[str, Best]:
        """The best models of a fork's source under our names, as far as they were chosen by our rule."""
        return {our_names.get(name, name): model for name, model in best.items() if model.by == self._rule}

    def _choice(self, state: State, source_names: Mapping[str, str], there: Mapping[str, str]) -> Choice | None:
        """The decision of an adaptive broadcast in a fork.

        It is still open if the broadcast compares other averages, or by another metric, than the source did, whose
        fingerprint is `there`.
        """
        broadcast = self.federation.broadcast
        if state.choice is None or broadcast is None:
            return None
        metric = "evaluation.metric"
        anew = any(source_names[name].endswith(ANEW) for name in broadcast.averages)
        if anew or self.driver.fingerprint[metric] != there.get(metric):
            return broadcast.first()
        return state.choice

    def _check_fork(self, source: Path, round: int) -> None:
        """Raise an error unless this run can begin at this round of the run in the folder `source`."""
        saved = saved_rounds(source / "state")
        if not saved and not Records(source).path.exists():
            raise RunError(f"{source} holds no run")
        if round not in saved:
            rounds = ", ".join(map(str, saved)) or "none"
            raise RunError(f"{source} has no state of round {round}; saved are: {rounds} (see checkpoint.keep)")
        check(self.rounds >= round, "rounds", self.rounds, f"must be at least the {round} of the fork's state")
        self.sums.check(source, round)

    def _check_members(self, source: Path, round: int) -> None:
        """Raise `RunError` if clients have joined or left a run in which each remembers something.

        SCAFFOLD's c, for example, is the mean of all clients' c_i, and no other number of clients has this mean.
        """
        if not self.federation.remembers:
            return
        before = len(checkpoints.sizes(place(source / "state", round)))
        clients = len(self.federation.sizes)
        if before == clients:
            return
        method = type(self.federation.method).__name__
        raise RunError(
            f"{source} has {before} clients, and here are {clients}: with {method} and these settings each client "
            "remembers something, so a fork must keep them all. Who leaves may just be away; who joins needs a method "
            "without client state, such as FedAvg, or a new run that begins with the model alone "
            f"(fedsash.open_run({str(source)!r}).module('round:{round}'))"
        )

    def _check_forked(self, state: State, there: Mapping[str, str]) -> None:
        """Raise an error unless another run's state can be one of this run. Its fingerprint is `there`."""
        self.federation.aggregation.check_composed(self.federation.fingerprint, there)
        check_kept(self.driver.fingerprint, there)
        sentences = other_samples(self.driver.fingerprint, there)
        if sentences and state.client_state:
            raise RunError(
                f"a fork must keep the samples from which clients remember something: {'; '.join(sentences)}"
            )


def _metric_of(folder: Path) -> str:
    """The name of the metric that decides in a run's folder; empty if its `goal.json` is lost or damaged."""
    try:
        criterion, _ = goal_of(folder)
    except RunError:
        return ""
    return criterion.name


def _without_more(history: History) -> History:
    """The records without what the metric that decides comes to by class, by domain and over clients."""
    return History(replace(record, more={}) if isinstance(record, Score) else record for record in history)


def _client_results(file: Path, round: int, our_names: Mapping[str, str]) -> dict[str, Any]:
    """The clients' results after a round in another run's file, of the models that we have, under our names."""
    table = run_table(file)
    if table is None or table.get("round") != round:
        return {}
    splits: dict[str, dict[str, Any]] = {}
    for split, models in table["splits"].items():
        splits[split] = {our_names[name]: results for name, results in models.items() if name in our_names}
    return {**table, "splits": splits}


def _taken_over(history: History, our_names: Mapping[str, str], scores: bool) -> Iterator[Record]:
    """The records of the models that we have, under our names; without the `scores` if clients have other samples."""
    for record in history:
        if isinstance(record, Score):
            if scores and record.model in our_names:
                yield replace(record, model=our_names[record.model])
        elif isinstance(record, Decision):
            if record.average in our_names:
                yield replace(record, average=our_names[record.average])
        else:
            yield record


def _seed_hint(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What to do about a model that differs in nothing but its numbers; empty if that is not so."""
    ours = here.get("model", "")
    theirs = there.get("model", "")
    if ours == theirs or ours.rpartition(", ")[0] != theirs.rpartition(", ")[0]:
        return ""
    return "; if only its first weights differ, seed PyTorch before you make it: torch.manual_seed"
