"""Evidence for five claims of IMA's theory: which factors of the error matter (C17, C20, C23), and bounds (B20, B23).

    python -m benchmarks.factors DATA FOLDER      then fedsash reproduce --merge FOLDER

FedAvg on Fashion-MNIST in the folder DATA with ten clients that all take part, each with 500 images: two shards, each
of one class, or the same images dealt IID. SGD with a rate of 0.01, momentum 0.9 and weight decay 1e-3, five epochs in
batches of 50, an MLP with 64 hidden units, 200 rounds, with the rate's decay of 0.01 a round and without. Each of
`--seeds` (0, 1 and 2) draws a split, of which there are four trainings: expectations are taken over these, so that
differences between the clients' data are bias, not variance. Ten times, evenly spaced, the clients of the next round
are looked at, on all 5,000 images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsash import Federation
from fedsash.lab.config import parse
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.ima_theory import CLAIMS
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.client_studies import over_orders
from fedsash.lab.studies.decomposition import likeness, predictions, probabilities
from fedsash.settings.errors import check
from fedsash.vector.arrays import Ints

from .evidence import arguments, enter

SETTING = "ours: FedAvg, an MLP, Fashion-MNIST, 10 clients of 500 images, expectations over 4 trainings"
PRINTED_ROUNDS = 400
TRAININGS = 4
CLIENTS = 10
NUMBERS_OF_CLIENTS = (1, 2, 5, 10)
ORDERS = 5
RATES: dict[str, dict[str, Any]] = {
    "no decay": {"name": "constant"},
    "decay 0.01": {"name": "exponential", "decay": 0.99},
}
SPLITS = {"#C = 2": False, "IID": True}
"""Whether the images are dealt at random."""
LOOKED_AT = tuple(range(20, PRINTED_ROUNDS, 40))
"""The rounds that are looked at, of 400; in shorter trainings those at the same share."""


class Trainings:
    """The trainings of one split and one rate, which differ in their seed alone, side by side."""

    def __init__(self, data: Path, split: str, rate: str, seed: int) -> None:
        self.federations = [federation(data, split, rate, seed, training) for training in range(TRAININGS)]
        self.states = [each.start() for each in self.federations]

    def train(self) -> None:
        """One more round of each."""
        self.states = [each.round(state)[0] for each, state in zip(self.federations, self.states, strict=True)]

    def clients(self) -> Clients:
        """The clients of the next round, in all trainings."""
        first = self.federations[0]
        trained = [client_models(*each) for each in zip(self.federations, self.states, strict=True)]
        alike = all(np.array_equal(models.ids, trained[0].ids) for models in trained)
        check(alike, "trainings", "other clients in each", "must have the same clients")
        w = torch.stack([models.w for models in trained])
        means = torch.stack([models.mean for models in trained])[:, None]
        data = first.training_data
        f, y, held = predictions(first.module, w, data, trained[0].ids)
        of_means, _, _ = predictions(first.module, means, data, trained[0].ids)
        return Clients(w, Answers(f, y, held, trained[0].p.to(f), of_means[:, 0]))

    def errors(self, w: Tensor) -> list[float]:
        """The test error of the mean of K of the models `w` `[R, K, D]` by K, over random orders and all trainings."""
        first = self.federations[0]
        test = first.training_data.test
        assert test is not None

        def error(chosen: Ints) -> tuple[float]:
            means = w[:, torch.from_numpy(chosen)].mean(1)
            f = probabilities(first.module, means, test, first.training_data)
            return (100 * float((f.argmax(-1) != test.y).double().mean()),)

        (by_number,) = over_orders(error, w.shape[1], ORDERS, 0)
        return by_number


@dataclass(frozen=True)
class Clients:
    """The models `w` `[R, K, D]` of K clients in R trainings, and what they answer."""

    w: Tensor
    answers: Answers


@dataclass(frozen=True)
class Answers:
    """Answers `f` `[R, K, n, c]` of K clients in R trainings to n images, and `of_means` `[R, n, c]` of their means.

    `y` `[n, c]` are one-hot labels, `held` `[K, n]` says which images each client holds, `p` `[K]` are the weights.
    Products of expectations are estimated without bias, by products of different trainings.
    """

    f: Tensor
    y: Tensor
    held: Tensor
    p: Tensor
    of_means: Tensor

    def factors(self) -> dict[str, float]:
        """What each factor adds to the mean squared error of the averaged model; each bias has half of the cross term.

        Theorem 1: the ensemble's error is ||sum_k p_k (TB_k + HB_k)||^2 + sum p_k^2 V_k + sum p_k p_k' Cov_kk'.
        """
        off = self.p[:, None, None] * (self.y - self.f)
        own = (off * self.held[..., None]).sum(1)
        others = (off * ~self.held[..., None]).sum(1)
        covariance = torch.outer(self.p, self.p) * self.covariances()
        return {
            "train bias": product_of_means(own, own + others),
            "heterogeneous bias": product_of_means(others, own + others),
            "variance": float(covariance.diagonal().sum()),
            "covariance": float(covariance.sum() - covariance.diagonal().sum()),
            "locality": _squared_error(self.of_means, self.y) - self.error(),
        }

    def error(self) -> float:
        """The mean squared error of the ensemble."""
        return _squared_error(torch.einsum("k,rknc->rnc", self.p, self.f), self.y)

    def covariances(self) -> Tensor:
        """The covariances of two clients' answers, in the mean over the images, `[K, K]`."""
        return _by_image(self.f).mean(0)

    def mean_covariance(self) -> float:
        """The mean covariance of two clients."""
        covariances = self.covariances()
        return float(covariances[_pairs(covariances)].mean())

    def mean_variance(self) -> float:
        """The mean variance of one client."""
        return float(self.covariances().diagonal().mean())

    def covariance_bound(self) -> float:
        """Corollary 1's bound: (K - 1)/K times the mean over the images of the least covariance of two clients.

        Which pair has the least is found in half of the trainings, and its covariance measured in the other half, both
        ways: the least of estimates would be too low.
        """
        halves = self.f.chunk(2)
        pairs = _pairs(self.covariances())
        means = []
        for found_in, measured_in in (halves, halves[::-1]):
            least = _by_image(found_in)[:, pairs].argmin(1, keepdim=True)
            means.append(float(_by_image(measured_in)[:, pairs].gather(1, least).mean()))
        count = len(self.p)
        return (count - 1) / count * sum(means) / len(means)

    def similarity(self) -> float:
        """The CKA of two clients' answers, in the mean over pairs and trainings."""
        return float(torch.tensor([likeness(answers) for answers in self.f]).mean())


def product_of_means(a: Tensor, b: Tensor) -> float:
    """<E a, E b> of `[R, n, c]`, in the mean over n: the products of different trainings alone are without bias."""
    count = len(a)
    all_pairs = (a.sum(0) * b.sum(0)).sum(-1)
    same = (a * b).sum((0, -1))
    return float((all_pairs - same).mean()) / (count * (count - 1))


def _by_image(f: Tensor) -> Tensor:
    """The covariances of answers `[R, K, n, c]` over the trainings, `[n, K, K]`."""
    deviations = f - f.mean(0)
    return torch.einsum("rknc,rlnc->nkl", deviations, deviations) / (len(f) - 1)


def _pairs(covariances: Tensor) -> Tensor:
    """Which entries `[K, K]` are of two clients."""
    return ~torch.eye(len(covariances), dtype=torch.bool)


def _squared_error(f: Tensor, y: Tensor) -> float:
    return float((y - f).square().sum(-1).mean())


def federation(data: Path, split: str, rate: str, seed: int, training: int) -> Federation:
    """The federation of a split, which the seed draws, in one of its trainings."""
    table = {
        "seed": TRAININGS * seed + training,
        "partition_seed": seed,
        "data": {"name": "fashion_mnist", "path": str(data)},
        "partition": {
            "name": "examples.findings.small_shards:SmallShards",
            "clients": CLIENTS,
            "iid": SPLITS[split],
        },
        "model": {"name": "mlp", "hidden": [64]},
        "local": {
            "lr": 0.01,
            "batch": 50,
            "epochs": 5,
            "optimiser": {"momentum": 0.9, "weight_decay": 1e-3},
            "schedule": RATES[rate],
        },
        "engine": {"kind": "vectorised", "compile": True, "block": 10, "workers": 1, "threads": 1},
    }
    return parse(table, own_code=True).federation()


class Found:
    """The numbers that the claims need, by their labels and by seed."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[Key, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))

    def look(self, trainings: Trainings, split: str, rate: str, seed: int, round: int) -> None:
        """Note what the clients of the next round show."""
        clients = trainings.clients()
        answers = clients.answers

        def note(claim: str, name: str, value: float, *labels: str | float) -> None:
            self._values[claim, name][labels][str(seed)] = value

        note("C20", "similarity", answers.similarity(), split, rate, round)
        if split == "IID" and rate == "no decay":
            note("B23", "covariance", answers.mean_covariance(), round)
            note("B23", "variance", answers.mean_variance(), round)
            for number, error in enumerate(trainings.errors(clients.w), 1):
                if number in NUMBERS_OF_CLIENTS:
                    note("B23", "error", error, number, round)
        if split == "#C = 2":
            factors = answers.factors()
            for factor, value in factors.items():
                note("C17", "size", value, rate, factor, round)
            note("C23", "covariance", factors["covariance"], rate, round)
            note("C23", "error", answers.error(), rate, round)
            note("B20", "bound", answers.covariance_bound() / answers.error(), rate, round)

    def evidence(self) -> dict[str, Evidence]:
        """The numbers of each claim."""
        dims = {
            ("C17", "size"): ("run", "factor", "round"),
            ("C20", "similarity"): ("split", "run", "round"),
            ("C23", "covariance"): ("run", "round"),
            ("C23", "error"): ("run", "round"),
            ("B20", "bound"): ("run", "round"),
            ("B23", "covariance"): ("round",),
            ("B23", "variance"): ("round",),
            ("B23", "error"): ("clients", "round"),
        }
        tables: dict[str, Evidence] = defaultdict(dict)
        for (claim, name), labels in dims.items():
            tables[claim][name] = Numbers.measured(labels, self._values[claim, name])
        return tables


def main() -> None:
    options = arguments(__doc__, rounds=200)
    found = Found()
    for seed in options.seeds:
        for split in SPLITS:
            for rate in RATES:
                for round, trainings in train(options.data, split, rate, seed, options.rounds):
                    found.look(trainings, split, rate, seed, round)
        print(f"seed {seed} has been run", flush=True)
    enter(options, "factors", "IMA", CLAIMS, found.evidence(), SETTING)


def train(data: Path, split: str, rate: str, seed: int, rounds: int) -> Iterator[tuple[int, Trainings]]:
    """The trainings before each of the rounds that are looked at, which are counted as in 400."""
    trainings = Trainings(data, split, rate, seed)
    places = {round * rounds // PRINTED_ROUNDS: round for round in LOOKED_AT}
    for round in range(rounds):
        if round in places:
            yield places[round], trainings
        trainings.train()


if __name__ == "__main__":
    main()
