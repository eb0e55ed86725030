"""Evidence for three claims of WiMA: small batches and drift (W42), what the window acts on (W46), its features (W48).

    python -m benchmarks.features DATA FOLDER      then fedsash reproduce --merge FOLDER

FedAvg on Fashion-MNIST in the folder DATA: 100 clients by WiMA's Dirichlet rule with alpha of 0 and 0.05, ten a round,
one epoch at a rate of 0.1 in batches of 20 and, for W42, of 100, an MLP with 64 hidden units, 1,000 rounds. Windows of
ten models observe: over the classifier, over the feature extractor, and over all. Numbers are means over ten rounds,
evenly spaced in the last tenth. The claims also speak of CIFAR-100, for which these splits don't stand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from fedsash import Federation
from fedsash.data.samples import Samples
from fedsash.lab.config import parse
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.wima_claims import CLAIMS
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.outputs import features, outputs, spread

from .evidence import arguments, enter, show

SETTING = "ours: FedAvg, an MLP, Fashion-MNIST for CIFAR-10, 10 of 100 clients a round, W = 10"
SPLITS = {"CIFAR-10 a=0": 0.0, "CIFAR-10 a=0.05": 0.05}
"""The alpha of each split, by the label that the paper's tables have for it."""
SMALL = 20
LARGE = 100
WINDOW = 10
COLUMNS = {"classifier": "classifier only", "extractor": "feature extractor only", "wima": "all"}
"""The columns of Table 5, by the average that each is of."""
FEATURES = {"model": "base", "extractor": "WiMA"}
"""Whose features a model has. The window over the extractor has the newest model's classifier on top of them."""
LOOKS = 10
RIDGE = 1e-6
"""What is added to the features' second moments, of which some units have none: they answer no image."""


class Course:
    """What one training showed, each as a list with a number for each look, in per cent but for `distance`."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.accuracy: dict[str, list[float]] = defaultdict(list)
        self.probe: dict[str, list[float]] = defaultdict(list)
        self.distance: list[float] = []

    def look(self, models: Mapping[str, Tensor], clients: Tensor) -> None:
        """Note the accuracies of models, how good a probe of features is, and how far apart `clients` `[s, D]` are."""
        data = self.federation.training_data
        assert data.test is not None
        for name, w in models.items():
            answers = outputs(self.federation.module, w, data.test, data.transform)
            self.accuracy[name].append(hits(answers, data.test.y))
        for name in FEATURES:
            x, x_test = (self._features(models[name], samples) for samples in (data.train, data.test))
            answers = probe(x, data.train.y, x_test, data.classes)
            self.probe[name].append(hits(answers, data.test.y))
        self.distance.append(spread(clients, clients.mean(0)).mean)

    def _features(self, w: Tensor, samples: Samples) -> Tensor:
        return features(self.federation.module, w, samples, self.federation.training_data.transform)


def probe(x: Tensor, y: Tensor, x_test: Tensor, classes: int) -> Tensor:
    """The answers `[m, classes]` for features `x_test` `[m, d]` of the linear map, with a bias, that is fitted to the
    features `x` `[n, d]` of samples with the labels `y` by least squares on one-hot vectors."""
    x = pad(x.double(), (0, 1), value=1.0)
    moments = x.mT @ x / len(x) + RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    weights: Tensor = torch.linalg.solve(moments, x.mT @ one_hot(y, classes).to(x) / len(x))
    return pad(x_test.double(), (0, 1), value=1.0) @ weights


def hits(answers: Tensor, y: Tensor) -> float:
    """The share of right answers, in per cent."""
    return 100 * float((answers.argmax(-1) == y).double().mean())


def federation(data: Path, seed: int, alpha: float, batch: int) -> Federation:
    """The federation of a seed."""
    averages: dict[str, dict[str, Any]] = {"wima": {"name": "window", "size": WINDOW}}
    for part in ("classifier", "extractor"):
        averages[part] = {"name": "window", "size": WINDOW, "part": part}
    table = {
        "seed": seed,
        "data": {"name": "fashion_mnist", "path": str(data)},
        "partition": {"name": "dirichlet", "clients": 100, "alpha": alpha},
        "model": {"name": "mlp", "hidden": [64]},
        "local": {"lr": 0.1, "batch": batch, "epochs": 1},
        "sampling": {"count": 10},
        "averages": averages,
        "engine": {"kind": "vectorised", "compile": True, "block": 10, "workers": 1, "threads": 1},
    }
    return parse(table).federation()


def train(federation: Federation, rounds: int) -> Course:
    """Train so many rounds, and look at the models ten times in the last tenth."""
    course = Course(federation)
    state = federation.start()
    every = max(1, rounds // 10 // LOOKS)
    for number in range(rounds):
        is_look = number >= rounds - LOOKS * every and (rounds - 1 - number) % every == 0
        clients = client_models(federation, state).w if is_look else None
        state, _ = federation.round(state)
        if clients is not None:
            course.look(federation.models(state), clients)
    return course


def evidence(courses: Mapping[tuple[str, str, int], Course]) -> dict[str, Evidence]:
    """What the claims need, from the trainings by seed, split and batch."""
    numbers: dict[Key, dict[str, float]] = defaultdict(dict)
    parts: dict[Key, dict[str, float]] = defaultdict(dict)
    of_features: dict[Key, dict[str, float]] = defaultdict(dict)
    for (seed, split, batch), course in courses.items():
        numbers["accuracy", split, batch][seed] = fmean(course.accuracy["wima"])
        numbers["distance", split, batch][seed] = fmean(course.distance)
        if batch != SMALL:
            continue
        for average, column in COLUMNS.items():
            parts[split, column, ""][seed] = fmean(course.accuracy[average])
        for model, whose in FEATURES.items():
            of_features[split, whose, "base"][seed] = fmean(course.accuracy[model])
            of_features[split, whose, "probe"][seed] = fmean(course.probe[model])
    return {
        "W42": {"numbers": Numbers.measured(("what", "split", "batch"), numbers)},
        "W46": {"accuracy": Numbers.measured(("row", "column", "cell"), parts)},
        "W48": {"accuracy": Numbers.measured(("split", "features", "classifier"), of_features)},
    }


def main() -> None:
    options = arguments(__doc__, rounds=1000)
    courses: dict[tuple[str, str, int], Course] = {}
    for seed in options.seeds:
        for split, alpha in SPLITS.items():
            for batch in (SMALL, LARGE):
                made = federation(options.data, seed, alpha, batch)
                courses[str(seed), split, batch] = train(made, options.rounds)
        print(f"seed {seed} has been run", flush=True)
    measured = evidence(courses)
    enter(options, "features", "WiMA", CLAIMS, measured, SETTING)
    show(measured)


if __name__ == "__main__":
    main()
