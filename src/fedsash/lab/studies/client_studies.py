"""Common parts of the studies of client models: checks, rounds, clients, random orders, and lines by their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...data.federated import FederatedData
from ...runs.pictures import Line, look
from ...runs.pictures.styles import Style
from ...settings.errors import RunError, check, some
from ...system.files import flat
from ...tasks import Classification
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator
from ..config.experiment import changes_numbers
from .client_models import ClientModels
from .opened import OpenRun
from .study import Findings, OnProgress, option, times

ROUNDS = option("saved rounds (default: all of them)", metavar="N[,N...]")
CLIENT_SAMPLES = option("at most N of the clients' samples, or all", metavar="N", none="all")
ORDERS = option("random orders of the clients")
SEED = option("for the orders")

SEEDS = ("seed", "partition_seed", "options.seed", "rounds")
"""Settings in which runs that are studied together may differ. Which clients hold what is compared by itself."""

LINES = 4
"""The most rounds that have a line of their own in a picture."""


def check_classes(run: OpenRun) -> None:
    """Raise `SettingError` unless the run's task is a classification, with one class for each sample."""
    task = run.federation.clients.problem.task
    check(isinstance(task, Classification), f"{run.folder}: task", type(task).__name__, "must be Classification")


def check_alike(runs: Sequence[OpenRun]) -> None:
    """Raise `ValueError` unless all runs classify, and have the same model, the same samples for each client, and no
    other settings."""
    first = runs[0].federation
    for run in runs:
        check_classes(run)
        run.check_rounds()
        requirement = f"must have the model and the clients of {runs[0].folder}: the same partition and partition_seed"
        if run.experiment.evaluation.held_out:
            requirement += ", and no held-out samples, which the seed draws"
        same_shapes = first.layout.shapes == run.federation.layout.shapes
        same_data = _same_data(first.training_data, run.federation.training_data)
        check(same_shapes and same_data, "runs", str(run.folder), requirement)
    check_settings(runs)


def _same_data(one: FederatedData, other: FederatedData) -> bool:
    """Whether both have the same labels, and the same samples for each client."""
    if len(one.clients) != len(other.clients):
        return False
    same_clients = all(map(np.array_equal, one.clients, other.clients))
    return same_clients and torch.equal(one.train.y, other.train.y)


def check_settings(runs: Sequence[OpenRun]) -> None:
    """Raise `RunError` unless runs are repetitions: each has a seed of its own, and they differ in nothing else but
    their length and what observes alone."""
    first = runs[0]
    first_settings = _acting(first)
    for run in runs[1:]:
        settings = _acting(run)
        keys = sorted(settings.keys() | first_settings.keys())
        differing = [key for key in keys if settings.get(key) != first_settings.get(key)]
        if differing:
            line = f"has other settings than {first.folder}: {some(differing)}; only seeds may differ"
            raise RunError(f"{run.folder}: {line}")
    by_seed: dict[int, OpenRun] = {}
    for run in runs:
        seed = run.federation.seed
        other = by_seed.setdefault(seed, run)
        if other is not run:
            line = f"has the seed of {other.folder}, {seed}: a repetition needs another one"
            raise RunError(f"{run.folder}: {line}")


def _acting(run: OpenRun) -> dict[str, Any]:
    """The settings that act on the training of each round, by their dotted keys."""
    acting = ["evaluation.held_out"]
    broadcast = run.federation.broadcast
    if broadcast:
        acting += [f"averages.{name}." for name in broadcast.averages]
        if broadcast.adaptive:
            acting += ["evaluation.every", "evaluation.metric", "metrics."]
    settings = {}
    for key, value in flat(run.experiment.table()):
        may_observe = key.startswith(("averages.", "evaluation.", "metrics."))
        if may_observe and not key.startswith(tuple(acting)):
            continue
        if changes_numbers(key) and key not in SEEDS:
            settings[key] = value
    return settings


def shared_rounds(runs: Sequence[OpenRun], wanted: Sequence[int] | None) -> list[int]:
    """The `wanted` rounds, or with None those of which all runs have a state, and after which the first run used an
    upload. Raises `ValueError` without a round."""
    if wanted is not None:
        rounds = list(wanted)
    else:
        saved = set(runs[0].rounds).intersection(*(run.rounds for run in runs))
        rounds = [round for round in sorted(saved) if runs[0].used(round)]
    check(len(rounds) > 0, "rounds", rounds, "there is no round of which all runs have a state")
    return rounds


def trained_alike(runs: Sequence[OpenRun], round: int) -> list[ClientModels]:
    """For each run, the models of the clients that train in the first run's round after `round`."""
    first = runs[0].client_models(round)
    trained = [first]
    for run in runs[1:]:
        models = run.client_models(round, first.ids)
        same_clients = np.array_equal(models.ids, first.ids)
        check(same_clients, "round", round, "some clients' uploads can't be used in this round")
        trained.append(models)
    return trained


def names_of_runs(runs: Sequence[OpenRun]) -> str:
    """The names of the runs, as many as `some` lists."""
    return some([run.folder.name for run in runs])


def by_round(
    rounds: Sequence[int], measured: Callable[[int], Mapping[str, Any]], progress: OnProgress
) -> dict[str, list[Any]]:
    """The `rounds`, and for each name what was `measured` in them."""
    lists: dict[str, list[Any]] = {}
    for done, round in enumerate(rounds, start=1):
        for name, value in measured(round).items():
            lists.setdefault(name, []).append(value)
        progress(done, len(rounds))
    return {"rounds": list(rounds), **lists}


def over_orders(numbers: Callable[[Ints], Sequence[float]], size: int, orders: int, seed: int) -> list[list[float]]:
    """For each of the `numbers` of some clients, by their places, a list by K = 1..`size`.

    At K is its mean over the first K clients in so many random `orders`.
    """
    permutations = [generator(seed, Purpose.DIRECTION, order).permutation(size) for order in range(orders)]
    means = []
    for k in range(1, size + 1):
        means.append(np.mean([numbers(order[:k]) for order in permutations], axis=0))
    lists: list[list[float]] = np.transpose(means).tolist()
    return lists


def by_number(findings: Findings, solid: str, dashed: str, dashed_name: str, scale: float = 1.0) -> list[Line]:
    """The numbers `solid` and, dashed, `dashed` by the number of models, for some rounds from the first to the last.

    Both are keys of the findings, lists by saved round and number. A dashed line has the name of its round and
    `dashed_name`.
    """
    rounds = findings["rounds"]
    places = np.unique(np.linspace(0, len(rounds) - 1, LINES).round().astype(int)).tolist()
    lines = []
    for number, place in enumerate(places):
        name = f"round {rounds[place]}"
        style = look(number)
        values = times(scale, findings[solid][place])
        lines.append(Line(name, range(1, len(values) + 1), values, style))
        style = Style(style.colour, "dash", style.symbol)
        values = times(scale, findings[dashed][place])
        lines.append(Line(f"{name}, {dashed_name}", range(1, len(values) + 1), values, style))
    return lines
