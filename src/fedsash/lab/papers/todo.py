"""What of the papers' tables is not run yet, and what it costs: the best evidence for the time first."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import Experiment
from ..config.registries import REGISTRIES
from ..config.words import show
from ..sweeps import PlannedRun, plan
from .ledger import Cell, Ledger, cells, planned
from .reproduction import Reproduction


@dataclass(frozen=True)
class Speed:
    """How long a network takes for a sample, forward and backward: on two cores of a server, and on an H100.

    Measured in bfloat16 on an AMD EPYC and in one run each on an H100, rounds of the papers' own settings; `nan` where
    nobody has measured it.
    """

    cores: float
    gpu: float = math.nan


SPEEDS = {
    "cifar_cnn": Speed(8.7 / 25_000, 0.09 / 25_000),
    "fmnist_cnn": Speed(4.1 / 30_000, 0.06 / 30_000),
    "lenet5": Speed(2.6 / 25_000),
    "resnet20_gn": Speed(6.5 / 5_000, 0.075 / 5_000),
    "resnet18_gn": Speed(236.0 / 25_000),
}
"""By network."""
EVALUATION = 0.02
"""Seconds that a GPU takes to score a model on ten thousand images: where each round is scored, that is much."""
SAMPLES = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "fashion_mnist": 60_000,
    "mnist": 60_000,
    "tiny_imagenet": 100_000,
    "pacs": 9_000,
    "digit_five": 145_000,
    "digits": 1_438,
}
"""Training samples, by data set; of others the cost is not known."""
NOT_SHARED = ("averages", "broadcast", "evaluation", "checkpoint", "engine", "device", "trajectory", "rounds")
"""The tables in which runs may differ that share rounds."""
TWO_GRADIENTS = ("fedsam", "mofedsam", "fedlesam", "fedasam")
"""Methods with two gradients a step, which take twice as long."""


@dataclass(frozen=True)
class Cost:
    """Hours on two cores and minutes on a GPU; NaN where nobody has measured the network."""

    hours: float
    minutes: float

    @property
    def known(self) -> bool:
        """Whether the hours are known."""
        return not math.isnan(self.hours)

    def __str__(self) -> str:
        hours = f"{_short(self.hours)} h on two cores" if self.known else "not timed"
        minutes = "not timed" if math.isnan(self.minutes) else f"{_short(self.minutes)} min"
        return f"{hours}, {minutes} on a GPU"


def _short(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.2g}"


@dataclass(frozen=True)
class Task:
    """Cells whose runs share rounds, such as one row of a table with one method, and what is left of them.

    `missing` is why it can't be run here, or empty.
    """

    reproduction: Reproduction = field(repr=False)
    cells: tuple[Cell, ...]
    runs: tuple[PlannedRun, ...] = field(repr=False)
    cost: Cost
    data: Path
    missing: str = ""

    @property
    def names(self) -> list[str]:
        """The names of its cells, as `ledger.find` takes them: a row alone where all of its numbers are here."""
        files = {cell.file for cell in self.cells}
        rows_with_others = set()
        for cell in cells(self.reproduction):
            if cell.file not in files:
                rows_with_others.add((cell.table.name, cell.row))
        names = []
        for cell in self.cells:
            if (cell.table.name, cell.row) in rows_with_others:
                names.append(f"{cell.row} / {cell.column}")
            else:
                names.append(cell.row)
        return list(dict.fromkeys(names))

    @property
    def command(self) -> str:
        """The command that runs it."""
        words = ["fedsash", "reproduce", self.reproduction.name]
        for name in self.names:
            words += ["--cell", name]
        if self.data != Path("data"):
            words += ["--data", str(self.data)]
        return shlex.join(words)

    def record(self) -> dict[str, Any]:
        """The task as plain data."""
        hours = None if math.isnan(self.cost.hours) else self.cost.hours
        minutes = None if math.isnan(self.cost.minutes) else self.cost.minutes
        return {
            "reproduction": self.reproduction.name,
            "cells": self.names,
            "numbers": len(self.cells),
            "hours": hours,
            "gpu_minutes": minutes,
            "missing": self.missing,
        }


def todo(reproductions: Iterable[Reproduction], ledger: Ledger, data: Path) -> list[Task]:
    """The tasks that are left, most cells an hour first; then those of unknown cost, then those without their data."""
    tasks: list[Task] = []
    for reproduction in reproductions:
        tasks += _tasks(reproduction, ledger, data)

    def order(task: Task) -> tuple[bool, bool, float]:
        unavailable = bool(task.missing)
        if not task.cost.known:
            return unavailable, True, 0.0
        return unavailable, False, task.cost.hours / len(task.cells)

    return sorted(tasks, key=order)


def _tasks(reproduction: Reproduction, ledger: Ledger, data: Path) -> Iterator[Task]:
    """What is left of one reproduction."""
    sweep = planned(reproduction)
    for group in _groups(reproduction, ledger):
        runs = tuple(run for run in sweep.runs if any(cell.takes(run) for cell in group))
        name = REGISTRIES["datasets"].name_of(runs[0].experiment.data)
        available = name == "digits" or (data / name).exists()
        missing = "" if available else f"{name} is not there"
        yield Task(reproduction, tuple(group), runs, cost_of(runs), data, missing)


def _groups(reproduction: Reproduction, ledger: Ledger) -> list[list[Cell]]:
    """The incomplete cells in groups whose runs may share rounds.

    A cell that shares rounds with several groups makes one group of them.
    """
    sweep = planned(reproduction)
    family_of = {run.name: _family(run) for run in sweep.runs}
    groups: list[tuple[set[str], list[Cell]]] = []
    for cell in cells(reproduction):
        if complete(cell, ledger):
            continue
        families = {family_of[run.name] for run in sweep.runs if cell.takes(run)}
        joined: list[Cell] = []
        apart = []
        for group_families, group in groups:
            # Families of different groups are disjoint, so it does not matter that `families` grows here.
            if group_families & families:
                families |= group_families
                joined += group
            else:
                apart.append((group_families, group))
        groups = [*apart, (families, [*joined, cell])]
    return [group for _, group in groups]


def _family(run: PlannedRun) -> str:
    """What runs have in common that may share rounds: all but schedules, broadcasts, averages and evaluations."""
    table = run.experiment.table()
    kept = {key: value for key, value in table.items() if key not in NOT_SHARED}
    kept["local"] = {key: value for key, value in table["local"].items() if key != "schedule"}
    return show(kept)


def complete(cell: Cell, ledger: Ledger) -> bool:
    """Whether a cell was run at its printed setting, in every choice of a grid, with all seeds of the reproduction."""
    runs = [run for run in planned(cell.reproduction).runs if cell.pick.takes(run.labels)]
    seeds = {run.experiment.seed for run in runs}
    rows = [row for row in ledger.rows(cell) if len(row.seeds) >= len(seeds)]
    missing = list(cell.settings)
    for row in rows:
        missing = [settings for settings in missing if settings.differences(row.settings)]
    return not missing


def cost_of(runs: Iterable[PlannedRun]) -> Cost:
    """What it takes to train some runs; rounds that they share count once.

    On cores evaluations take up to a tenth, which is left out.
    """
    hours = 0.0
    minutes = 0.0
    for rounds, experiment in _trained(runs):
        samples = rounds * _samples_a_round(experiment)
        speed = SPEEDS.get(experiment.model.name, Speed(math.nan))
        twice = 2 if REGISTRIES["methods"].name_of(experiment.method) in TWO_GRADIENTS else 1
        hours += twice * samples * speed.cores / 3600
        scored = rounds // experiment.evaluation.every + min(experiment.evaluation.last, rounds)
        models = 1 + len(experiment.averages)
        minutes += (twice * samples * speed.gpu + scored * models * EVALUATION) / 60
    return Cost(hours, minutes)


def _trained(runs: Iterable[PlannedRun]) -> Iterator[tuple[int, Experiment]]:
    """The rounds to train, and the experiments that they are of."""
    families: dict[str, list[PlannedRun]] = {}
    for run in runs:
        families.setdefault(_family(run), []).append(run)
    for family in families.values():
        if len(family) == 1:  # without a plan, which takes long for 10,000 rounds
            yield family[0].experiment.rounds, family[0].experiment
            continue
        for segment in plan(family).segments:
            yield segment.rounds, segment.experiment


def _samples_a_round(experiment: Experiment) -> float:
    """The samples that the clients of a round go through, all epochs counted."""
    table = experiment.table()
    samples = SAMPLES.get(table["data"]["name"], math.nan)
    clients = float(table["partition"].get("clients") or math.nan)
    if "scheduler" not in table:
        count = table["sampling"].get("count", math.nan)
    elif table["scheduler"]["name"] == "synchronous":
        count = clients
    else:  # on a network a round of one trip, or of as many as its window slides
        count = table["scheduler"].get("slide", 1)
    share = float(count) / clients
    epochs = experiment.local.epochs
    if not isinstance(epochs, int | float):
        return math.nan
    return samples * share * epochs
