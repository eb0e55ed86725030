"""Evidence for three claims of WiMA: bad rounds (W9), the last clients' classes (W10), earlier clients (W11).

    python -m benchmarks.last_clients DATA FOLDER      then fedsash reproduce --merge FOLDER

FedAvg on Fashion-MNIST in the folder DATA: 100 clients with one class each, ten a round, one epoch in batches of 100
at a rate of 0.1, an MLP with 64 hidden units, 1,000 rounds; the window has the last ten models. For each of `--seeds`
(0, 1 and 2) there are three draws of the clients of all rounds, with the rest the same. The end of a run is the mean
of its last 100 rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import Tensor

from fedsash import Federation, Uniform
from fedsash.data.samples import Samples
from fedsash.lab.config import parse
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.wima_claims import CLAIMS
from fedsash.lab.studies.outputs import outputs
from fedsash.methods.sampling import Function
from fedsash.vector.arrays import Ints

from .evidence import arguments, enter, show

SETTING = "ours: FedAvg, an MLP, Fashion-MNIST, one class a client, 10 of 100 clients a round, W = 10"
END = 100
DRAWS = 3
FEW = 5
"""The most classes of a round whose clients hold few: half of ten."""
LONGEST_AGO = 10
EVERY = 10
"""After every so many rounds all clients' data are looked at."""
MODELS = {"base": "model", "WiMA": "wima"}


@dataclass
class Course:
    """What a training showed of one model, in per cent, by round.

    - `accuracy`: on the test set
    - `held`, `others`: on the classes that the round's clients hold, and on the others, where there are both
    - `ago`: on the data of the clients that took part last so many rounds ago
    """

    accuracy: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    ago: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def drop(self, classes: Sequence[int]) -> float:
        """By how many points the accuracy falls on average in the rounds with few of the `classes` that each had."""
        falls = []
        for round in range(1, len(classes)):
            if classes[round] <= FEW:
                falls.append(self.accuracy[round - 1] - self.accuracy[round])
        return fmean(falls)

    def look(self, by_class: Tensor, held: Sequence[int]) -> None:
        """Note a round's accuracy by class `[10]`, the test set having equally many images of each."""
        self.accuracy.append(float(by_class.mean()))
        others = [each for each in range(len(by_class)) if each not in held]
        if others:
            self.held.append(float(by_class[held].mean()))
            self.others.append(float(by_class[others].mean()))

    def look_back(self, by_client: Tensor, last_rounds: Ints, round: int) -> None:
        """Note the accuracies `[N]` on clients' data, by how long ago each took part last."""
        for ago in range(1, LONGEST_AGO + 1):
            clients = np.flatnonzero(last_rounds == round + 1 - ago)
            if len(clients):
                self.ago[ago].append(float(by_client[clients].mean()))


@dataclass
class Run:
    """The courses of both models in a run, and how many classes the clients of each round held."""

    courses: dict[str, Course]
    classes: list[int]


def federation(data: Path, seed: int, draw: int) -> Federation:
    """The federation of a seed, with one of its draws of clients."""
    table = {
        "seed": seed,
        "data": {"name": "fashion_mnist", "path": str(data)},
        "partition": {"name": "dirichlet", "clients": 100, "alpha": 0.0},
        "model": {"name": "mlp", "hidden": [64]},
        "local": {"lr": 0.1, "batch": 100, "epochs": 1},
        "averages": {"wima": {"name": "window", "size": 10}},
        "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
    }

    def clients(round: int, sizes: Ints, seed: int) -> Ints:
        return Uniform(10).draw(round, sizes, DRAWS * seed + draw)

    made = parse(table).driver()
    assert isinstance(made, Federation)
    return replace(made, sampling=Function(clients))


def train(federation: Federation, rounds: int) -> Run:
    """Train so many rounds, and look at both models after each."""
    data = federation.training_data
    assert data.test is not None
    class_of_client = np.array([int(data.train.y[indices[0]]) for indices in data.clients])
    last_rounds = np.full(len(data.clients), -LONGEST_AGO - 1)
    run = Run({name: Course() for name in MODELS}, [])
    state = federation.start()
    for round in range(rounds):
        ids = federation.sampling.clients(round, federation.sizes, federation.seed)
        last_rounds[ids] = round
        state, _ = federation.round(state)
        held = sorted(set(class_of_client[ids].tolist()))
        run.classes.append(len(held))
        models = federation.models(state)
        for name, model in MODELS.items():
            hits = _hits(federation, models[model], data.test)
            run.courses[name].look(_means(hits, data.test.y, data.classes), held)
            if (round + 1) % EVERY == 0:
                hits = _hits(federation, models[model], data.train)
                by_client = torch.stack([100 * hits[indices].mean() for indices in data.clients])
                run.courses[name].look_back(by_client, last_rounds, round)
    return run


def _hits(federation: Federation, w: Tensor, samples: Samples) -> Tensor:
    """1 for each sample that the model `w` `[D]` gets right, else 0."""
    transform = federation.training_data.transform
    answers = outputs(federation.module, w, samples, transform).argmax(1)
    return (answers == samples.y).double()


def _means(hits: Tensor, y: Tensor, classes: int) -> Tensor:
    """The share of hits by class `[classes]`, in per cent."""
    return torch.stack([100 * hits[y == each].mean() for each in range(classes)])


def evidence(runs: dict[str, list[Run]]) -> dict[str, dict[str, Numbers]]:
    """What the claims need, from the runs of each seed: one for each draw, of which the first counts for all but W9."""
    drop: dict[Key, dict[str, float]] = defaultdict(dict)
    spread: dict[Key, dict[str, float]] = defaultdict(dict)
    bias: dict[Key, dict[str, float]] = defaultdict(dict)
    kept: dict[Key, dict[str, float]] = defaultdict(dict)
    for seed, draws in runs.items():
        for name in MODELS:
            courses = [run.courses[name] for run in draws]
            drop[name,][seed] = fmean(run.courses[name].drop(run.classes) for run in draws)
            spread[name,][seed] = stdev(fmean(course.accuracy[-END:]) for course in courses)
            bias[name, "last round's"][seed] = fmean(courses[0].held)
            bias[name, "others"][seed] = fmean(courses[0].others)
            for ago, accuracies in courses[0].ago.items():
                kept[name, ago][seed] = fmean(accuracies)
    return {
        "W9": {"drop": Numbers.measured(("model",), drop), "spread": Numbers.measured(("model",), spread)},
        "W10": {"accuracy": Numbers.measured(("model", "classes"), bias)},
        "W11": {"accuracy": Numbers.measured(("model", "ago"), kept)},
    }


def main() -> None:
    options = arguments(__doc__, rounds=1000)
    runs: dict[str, list[Run]] = {}
    for seed in options.seeds:
        runs[str(seed)] = [train(federation(options.data, seed, draw), options.rounds) for draw in range(DRAWS)]
        print(f"seed {seed} has been run", flush=True)
    measured = evidence(runs)
    enter(options, "last_clients", "WiMA", CLAIMS, measured, SETTING)
    show(measured)


if __name__ == "__main__":
    main()
