"""Evidence for five claims of IMA on clients' updates and what a cohort lacks: A8, A13, A14, A15 and D5.

    python -m benchmarks.drift DATA FOLDER      then fedsash reproduce --merge FOLDER

FedAvg on Fashion-MNIST in the folder DATA: 100 clients of two shards, each of one class, ten a round, SGD with a rate
of 0.01 without decay, momentum 0.9 and weight decay 1e-3, five epochs in batches of 50, an MLP with 64 hidden units,
400 rounds. Losses and errors are those of the test set, but for D5's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedsash import Federation
from fedsash.data.samples import Samples
from fedsash.lab.config import parse
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.ima_claims import CLAIMS as OF_THE_METHOD
from fedsash.lab.papers.ima_theory import CLAIMS as OF_THE_THEORY
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.studies.client_models import ClientModels, client_models
from fedsash.lab.studies.outputs import outputs
from fedsash.server.state import State

from .evidence import arguments, enter

SETTING = "ours: FedAvg, an MLP, Fashion-MNIST, #C = 2, 10 of 100 clients a round"
EPOCHS = 5
TRAINED_ON = 20
"""How many times as long clients train where A8 lets their loss settle: 100 epochs. That it has is not checked."""
WINDOW = 5
OUTSIDE_EVERY = 20
"""After every so many rounds the samples outside the cohort are looked at."""
STAGES = {"early": 0.05, "middle": 0.5, "final": 1.0}
CLAIMS = {name: OF_THE_THEORY[name] for name in ("A8", "A13", "A14", "A15")} | {"D5": OF_THE_METHOD["D5"]}


class Course:
    """What one training showed: each measure's numbers by their labels."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.cosine: dict[Key, float] = {}
        self.ratio: dict[Key, float] = {}
        self.loss: dict[Key, float] = {}
        self.error: dict[Key, float] = {}
        self.bias: dict[Key, float] = {}

    def look_at_updates(self, w: Tensor, models: ClientModels, round: int) -> None:
        """Note how alike the updates of a round's clients are, from the model `w` `[D]`, and where they lead."""
        updates = models.w - w
        self.cosine[round,] = mean_cosine(updates)
        self.ratio[round,] = float(updates.mean(0).norm() / updates.norm(dim=1).mean())
        self.loss[round, "before"] = self._loss(w)
        self.loss[round, "clients"] = fmean(self._loss(model) for model in models.w)
        self.loss[round, "mean"] = self._loss(models.mean)

    def look_at_clients(self, state: State, stage: str) -> None:
        """Note the clients' test error after their round, and after they have trained on alone."""
        local = replace(self.federation.local, epochs=EPOCHS * TRAINED_ON)
        longer = replace(self.federation, local=local)
        for name, federation in (("round", self.federation), ("trained on", longer)):
            models = client_models(federation, state)
            self.error[stage, name] = fmean(self._error(model) for model in models.w)

    def look_outside(self, w: Tensor, mean: Tensor, cohort: np.ndarray, round: int) -> None:
        """Note the squared error of a model and of the window's mean on the samples that the cohort lacks."""
        data = self.federation.training_data
        held = np.concatenate([data.clients[i] for i in cohort])
        lacking = np.setdiff1d(np.concatenate(data.clients), held)
        samples = data.train[torch.from_numpy(lacking)]
        for name, model in (("one", w), ("mean", mean)):
            f = self._answers(model, samples).softmax(-1)
            self.bias[name, round] = float((one_hot(samples.y, f.shape[-1]) - f).square().sum(-1).mean())

    def _loss(self, w: Tensor) -> float:
        return float(cross_entropy(self._answers(w, self._test), self._test.y))

    def _error(self, w: Tensor) -> float:
        """The share of wrong answers, in per cent."""
        wrong = self._answers(w, self._test).argmax(1) != self._test.y
        return 100 * float(wrong.double().mean())

    @property
    def _test(self) -> Samples:
        test = self.federation.training_data.test
        assert test is not None
        return test

    def _answers(self, w: Tensor, samples: Samples) -> Tensor:
        return outputs(self.federation.module, w, samples, self.federation.training_data.transform)


def mean_cosine(updates: Tensor) -> float:
    """The cosine of two clients' updates `[s, D]`, in the mean over all pairs."""
    directions = updates / updates.norm(dim=1, keepdim=True)
    first, second = torch.triu_indices(len(updates), len(updates), offset=1)
    return float((directions @ directions.T)[first, second].mean())


def federation(data: Path, seed: int) -> Federation:
    """The federation of a seed."""
    table = {
        "seed": seed,
        "data": {"name": "fashion_mnist", "path": str(data)},
        "partition": {"name": "shards", "clients": 100, "classes": 2},
        "model": {"name": "mlp", "hidden": [64]},
        "local": {
            "lr": 0.01,
            "batch": 50,
            "epochs": EPOCHS,
            "optimiser": {"momentum": 0.9, "weight_decay": 1e-3},
        },
        "sampling": {"count": 10},
        "averages": {"ima": {"name": "window", "size": WINDOW}},
        "engine": {"kind": "vectorised", "compile": True, "block": 10, "workers": 1, "threads": 1},
    }
    return parse(table).federation()


def train(federation: Federation, rounds: int) -> Course:
    """Train so many rounds, and look at the first and the last twentieth of them, at the stages, and outside."""
    course = Course(federation)
    state = federation.start()
    stages = {max(0, round(share * rounds) - 1): stage for stage, share in STAGES.items()}
    for number in range(rounds):
        if number < rounds / 20 or number >= rounds * 19 / 20:
            course.look_at_updates(state.w, client_models(federation, state), number)
        if number in stages:
            course.look_at_clients(state, stages[number])
        cohort = federation.sampling.clients(number, federation.sizes, federation.seed)
        state, _ = federation.round(state)
        if (number + 1) % OUTSIDE_EVERY == 0:
            models = federation.models(state)
            course.look_outside(models["model"], models["ima"], cohort, number + 1)
    return course


def evidence(courses: dict[str, Course]) -> dict[str, Evidence]:
    """What the claims need, from the trainings by seed."""

    def measured(dims: tuple[str, ...], numbers: Callable[[Course], dict[Key, float]]) -> Numbers:
        by_key: dict[Key, dict[str, float]] = defaultdict(dict)
        for seed, course in courses.items():
            for key, value in numbers(course).items():
                by_key[key][seed] = value
        return Numbers.measured(dims, by_key)

    cosine = measured(("round",), lambda course: course.cosine)
    loss = measured(("round", "model"), lambda course: course.loss)
    return {
        "A8": {"error": measured(("panel", "model"), lambda course: course.error)},
        "A13": {"cosine": cosine},
        "A14": {"cosine": cosine},
        "A15": {"ratio": measured(("round",), lambda course: course.ratio), "loss": loss},
        "D5": {"bias": measured(("model", "round"), lambda course: course.bias)},
    }


def main() -> None:
    options = arguments(__doc__, rounds=400)
    courses: dict[str, Course] = {}
    for seed in options.seeds:
        courses[str(seed)] = train(federation(options.data, seed), options.rounds)
        print(f"seed {seed} has been run", flush=True)
    enter(options, "drift", "IMA", CLAIMS, evidence(courses), SETTING)


if __name__ == "__main__":
    main()
