"""Synchronous rounds over nodes, as `fedsash flower serve` makes them, and what must hold of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from fedsash.averages import Window
from fedsash.averages.sum_files import place, read
from fedsash.client.messages import Job, RoundReport
from fedsash.evaluation import Score
from fedsash.flower import FlowerClients, client_app
from fedsash.methods import Scaffold
from fedsash.runs import Callback, Checkpoint, Driver, Fork, Result, resume, run
from fedsash.runs.callback import LiveRun
from fedsash.runs.folder import RunFolder
from fedsash.runs.model_files import read_model
from fedsash.runs.running_sums import RunningSums
from fedsash.server.federation import Federation
from fedsash.system.lock import locked
from fedsash.vector.saved import saved_rounds

from . import growing
from .faults import Kind
from .node import Node
from .reference import differences, reference
from .setup import Setup
from .told import Told
from .vectors import TOLERANCE, distant

IN_TIME = ("late", "lost", "away", "failed: Error: Node Unavailable", "failed: Error: Message Unavailable")
"""The first words of reasons that are a matter of time, and no failure of a node."""
VERSION = re.compile(r"clients/[0-9a-zA-Z]+/\d+/(\d{8}-\d{8}-\d+\.safetensors|\.\d{8}-\d{8}-\d+\..*)")
"""The name of a version of a client's state on its node, and of one that is not finished."""
SPARE = 6
"""How many versions a client may keep beside those of the rounds since the second newest state: late and lost ones."""


class Rounds:
    """A run in the folder `out` of the server's machine; what happens in it is `told`.

    If the setup has a fork, it is the run in `source` first, and then the fork in `out`. When an exception ends it, a
    run `rescues` the state of its last round.
    """

    rescues = True
    of_sessions = ("summary.json", "sessions.json", "lock")
    """The files that another session changes: how often a run was resumed, and who is at work in it."""

    def __init__(self, setup: Setup, out: Path, told: Told) -> None:
        self.setup = setup
        self.out = out
        self.told = told
        self.simulation = setup.federation()
        self._data_of = cache(setup.data_of)
        self.source: Path | None = None

    def new_app(self, node: Node) -> Any:
        """The app of a node in a new process of its machine."""
        model = None
        if self.setup.model is None:
            model = self.setup.module()
        data = self._data_of(node.number, node.broken)
        folder = node.machine.disk.root / "clients"
        return client_app(data, model=model, own_code=True, folder=folder)

    def serve(self, grid: Any) -> Result:
        """One process of the server: it begins the run, or goes on with it, until the end."""
        with locked(self.out):
            driver = self.driver(grid)
        shown: dict[str, Any] = {"progress": False, "callbacks": [Recorder(self)]}
        if RunFolder(self.out).begun:
            return resume(driver, self.setup.rounds, self.out, **shown)
        if self.told.saved:
            self.told.violation(f"round {max(self.told.saved)} was saved, and the run is gone")
        fork = None if self.source is None else Fork(self.source, self.setup.fork)
        checkpoint = Checkpoint(every=self.setup.every, keep=(self.setup.fork,) if self.setup.fork else ())
        sums = RunningSums(self.setup.sums)
        return run(driver, self.setup.rounds, out=self.out, fork=fork, checkpoint=checkpoint, trajectory=sums, **shown)

    def driver(self, grid: Any) -> Driver:
        """What makes the rounds: the federation over the nodes of a grid."""
        return self.over_nodes(grid, self.setup.minimum)

    def over_nodes(self, grid: Any, minimum: int) -> Federation:
        """The federation over the nodes of a grid, once each client has one."""
        clients = FlowerClients(
            grid,
            self.simulation.clients.problem,
            self.setup.clients,
            self.setup.model,
            evaluation=self.simulation.evaluation,
            seed=self.setup.seed,
            waiting=self.setup.waiting(minimum),
            remember=self.setup.remember,
        )
        return replace(self.simulation, data=clients)

    def ended_early(self, result: Result) -> str:
        """Why the run ended before its last round; empty if it did not."""
        return str(result.summary.get("ended_early", ""))

    def is_done(self, result: Result) -> bool:
        """Whether the server has made all rounds, those of the fork, too: one without nodes ends early."""
        if result.state.round < self.setup.rounds:
            return False
        if not self.setup.fork or self.source is not None:
            return True
        self.source = self.out
        self.out = self.out.with_name("fork")
        self.told.forked(self.setup.fork)
        return False

    def changes(self, result: Result, before: Result) -> Iterator[str]:
        """What a result has that differs from the one before, and files of its models that are not those of it."""
        for name in differences(result.state, before.state):
            yield name
        for name, best in before.tally.best.items():
            if not torch.equal(result.tally.best[name].w, best.w):
                yield f"the best {name}"
        yield from self._wrong_files(result)

    def _wrong_files(self, result: Result) -> Iterator[str]:
        """Files of models that have not those of the last state."""
        for name in result.models:
            written = load(read_model(self.out, name))
            if any(not torch.equal(written[key], value) for key, value in result.state_dict(name).items()):
                yield f"the file of {name} has not the model of the last state"

    def violations(self, result: Result) -> Iterator[str]:
        """What does not hold at the end of a run."""
        yield from self.differences(result)
        yield from self._unexplained()
        yield from self._wrong_best(result)
        yield from self._wrong_files(result)
        for path in self.out.rglob(".*.tmp"):
            yield f"{path.name} is left over"
        if saved_rounds(self.out / "state")[-1:] != [self.setup.rounds]:
            yield "the last state is not saved"
        if not (self.out / "engine.json").exists():
            yield "the folder does not say which engine it has"

    def left_over_at(self, node: Path) -> Iterator[str]:
        """Files that a node should not have: other ones than versions of its own clients' state, or too many of these.

        The two saved states of the server may ask for some, and a fork for more. One that a killed process has not
        finished may be there.
        """
        for file in node.rglob("*"):
            if file.is_file() and not VERSION.fullmatch(str(file.relative_to(node))):
                yield f"{file} is left over"
        if self.setup.fork:
            return
        most = 2 * self.setup.every + SPARE
        for client in node.glob("clients/*/*"):
            versions = len(list(client.iterdir()))
            if versions > most:
                yield f"{node.name} keeps {versions} files of a client"

    def differences(self, result: Result) -> Iterator[str]:
        """What differs from a run without faults, in which the uploads are accepted that are by the run's records."""
        models: dict[int, Tensor] = {}
        accepted: dict[Job, dict[int, set[int]]] = {"train": self._accepted(), "probe": self._probed()}
        expected = reference(self.simulation, accepted, self.setup.minimum, self.setup.rounds, models)
        for name in differences(result.state, expected):
            yield f"{name} is not that of the run without faults"
        yield from self._unlike_means(result, models)
        yield from self._wrongly_sent(models)
        yield from self._wrong_sums(models)
        for name, best in result.tally.best.items():
            if name == "model" and not torch.equal(best.w, latest(models, best.round)):
                yield f"the best model is not that of round {best.round}"
        if self.setup.method == "growing":
            yield from self._grown(models)
            yield from self._refused_early(models)
        if isinstance(self.simulation.method, Scaffold):
            mean = expected.client_state["c"].mean(0)
            yield from distant("c", result.state.server_state["c"], mean, "the mean of all c_i")

    def _grown(self, models: Mapping[int, Tensor]) -> Iterator[str]:
        """Clients that were accepted with what is not finite: in more rounds with a model than a number can grow."""
        counts = Counter(client for round, ids in self._accepted().items() if round in models for client in ids)
        for client, count in counts.items():
            if count > growing.MOST:
                yield f"client {client} counts in {count} rounds, and its state is not finite"

    def _refused_early(self, models: Mapping[int, Tensor]) -> Iterator[str]:
        """Clients that are refused before their number has grown to what is not finite, though nothing diverges."""
        accepted = self._accepted()
        for row in self._problems():
            for client in row.get("refused", ()):
                count = sum(client in accepted[round] for round in models if 0 < round < row["round"])
                diverges = any(fault.diverges for fault in self.faults_of(client, row["round"]))
                if count < growing.MOST and not diverges:
                    yield f"client {client} is refused in round {row['round']}, and counts in {count} rounds before"

    def _unlike_means(self, result: Result, models: Mapping[int, Tensor]) -> Iterator[str]:
        """Windows that are not the means of the last models; one that is shown the clients' means observes others."""
        broadcast = self.simulation.broadcast
        for name, average in self.simulation.averages.items():
            apart = broadcast is not None and name in broadcast.apart
            if isinstance(average, Window) and not apart and len(models) > 1:
                mean = mean_of_last(models, self.setup.rounds, average.size)
                yield from distant(name, result.vectors()[name], mean, "the mean of the last models")

    def _wrongly_sent(self, models: Mapping[int, Tensor]) -> Iterator[str]:
        """Rounds whose clients received another model than the last one, or than the window that is broadcast."""
        broadcast = self.simulation.broadcast
        for round, sent in self.told.sent.items():
            expected = latest(models, round - 1)
            if broadcast is not None and broadcast.order == "after" and round > self.setup.broadcast:
                average = self.simulation.averages[broadcast.averages[0]]
                if not isinstance(average, Window):
                    continue
                expected = mean_of_last(models, round - 1, average.size)
            yield from distant(f"what the clients of round {round} received", sent, expected, "what is broadcast")

    def _wrong_sums(self, models: Mapping[int, Tensor]) -> Iterator[str]:
        """Sums that are missing or not those of the models up to their round; a fork takes over none of no model."""
        if not self.setup.sums:
            return
        folder = self.out / "trajectory"
        for round in range(self.setup.sums, self.setup.rounds + 1, self.setup.sums):
            summed = [model for number, model in models.items() if 0 < number <= round]
            if not place(folder, round).exists():
                if summed:
                    yield f"there is no sum after round {round}"
                continue
            running_sum = read(folder, round)
            total = sum(summed, torch.zeros_like(models[0]))
            if running_sum.count != len(summed):
                yield f"the sum after round {round} is of {running_sum.count} models instead of {len(summed)}"
            what = f"the sum after round {round}"
            tolerance = TOLERANCE * max(len(summed), 1)
            yield from distant(what, running_sum.high + running_sum.low, total, "the models' sum", tolerance)

    def _wrong_best(self, result: Result) -> Iterator[str]:
        """Best models that are not those of the best recorded value."""
        split = self.simulation.evaluation.best_on
        criterion = self.simulation.goal.criterion
        values: dict[str, dict[int, float]] = {}
        for record in result.history:
            if isinstance(record, Score) and record.split == split:
                values.setdefault(record.model, {})[record.round] = record[criterion.name]
        for name, by_round in values.items():
            best_round = criterion.best(by_round)
            kept_round = None
            if name in result.tally.best:
                kept_round = result.tally.best[name].round
            if kept_round != best_round:
                yield f"{name}-best is of round {kept_round}, and the best value is of round {best_round}"

    def _accepted(self) -> dict[int, set[int]]:
        """The clients that were asked in each round, from 1, and whose upload has no reason against it in the records.

        A refusal that is not recorded makes the model another one than that of the run without faults.
        """
        federation = self.simulation
        accepted = {}
        for round in range(self.setup.rounds):
            asked = federation.sampling.clients(round, federation.sizes, federation.seed)
            accepted[round + 1] = set(asked.tolist())
        for row in self._problems():
            accepted[row["round"]] -= {int(client) for client in row.get("missing", {})} | set(row.get("refused", []))
        return accepted

    def _probed(self) -> dict[int, set[int]]:
        """The clients whose answer to a probe was accepted in each round: those that were then sent a request to train.

        Also those that had answered and could not be sent one.
        """
        probed = {round: set(clients) for round, clients in self.told.asked.items()}
        for row in self._problems():
            for client, why in row.get("missing", {}).items():
                answered = int(client) in self.told.probed.get(row["round"], set())
                if answered and why.startswith(("away", "lost")):
                    probed.setdefault(row["round"], set()).add(int(client))
        return probed

    def unheard(self, report: RoundReport) -> Iterator[str]:
        """Clients that are not heard in time in a round that has just been made, though nothing disturbs their node."""
        for client, why in report.missing.items():
            if why.startswith(IN_TIME) and self.told.knows(client % self.setup.nodes):
                yield f"client {client} is not heard in round {report.round}, and its node was there: {why}"

    def faults_of(self, client: int, round: int) -> list[Kind]:
        """The kinds of the faults from which something may have followed for a client in the record of a round."""
        return self.told.faults_of(client % self.setup.nodes, round)

    def _unexplained(self) -> Iterator[str]:
        """Clients that are missing without a reason in the records, or for one that no fault of their node explains."""
        for row in self._problems():
            for client, why in row.get("missing", {}).items():
                if not why:
                    yield f"client {client} is missing in round {row['round']} without a reason"
                faults = self.faults_of(int(client), row["round"])
                if not why.startswith(IN_TIME) and not any(fault.excuses(why) for fault in faults):
                    yield f"client {client} is missing in round {row['round']} though nothing befell its node: {why}"
            for client in row.get("refused", ()):
                diverges = any(fault.diverges for fault in self.faults_of(client, row["round"]))
                if not diverges and self.setup.method != "growing":
                    yield f"client {client} is refused in round {row['round']} though its training does not diverge"

    def _problems(self) -> list[dict[str, Any]]:
        """The records of the rounds with problems."""
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        return [row for row in rows if row["split"] == "guard"]


class Recorder(Callback):
    """Tells of the rounds and of the states that were saved."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds

    def begin(self, run: LiveRun) -> None:
        rounds = self._rounds
        start_is_saved = 0 in saved_rounds(rounds.out / "state")
        rounds.told.begun(run.round, run.resumed, start_is_saved)

    def round(self, run: LiveRun, report: RoundReport) -> None:
        rounds = self._rounds
        if report.skipped:
            rounds.told.skipped(report.round)
        for line in rounds.unheard(report):
            rounds.told.violation(line)
        text = "; ".join(report.lines()) or "all answered"
        rounds.told.round(report.round, f"{report.clients.tolist()}: {text}")
        if not bool(torch.isfinite(run.state.w).all()):
            rounds.told.violation(f"the model of round {report.round} is not finite")
        if report.round in rounds.told.after_round:
            rounds.told.after_round.pop(report.round)()
        if report.round % rounds.setup.every == 0 or report.round == rounds.setup.rounds:
            rounds.told.state_saved(report.round)


def latest(models: Mapping[int, Tensor], round: int) -> Tensor:
    """The model after so many rounds: that of the last round that has moved it."""
    return models[max(number for number in models if number <= round)]


def mean_of_last(models: Mapping[int, Tensor], round: int, size: int) -> Tensor:
    """The mean of the last `size` models of the rounds up to this one, without the first one; or it, if it is alone."""
    past = [model for number, model in sorted(models.items()) if 0 < number <= round]
    if not past:
        return models[0]
    return torch.stack(past[-size:]).mean(0)
