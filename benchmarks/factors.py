"""Evidence for five claims of IMA's theory: which factors of the error matter (C17, C20, C23), and bounds (B20, B23).

    python -m benchmarks.factors DATA FOLDER      then fedsash reproduce --merge FOLDER

FedAvg on Fashion-MNIST in the folder DATA with ten clients that all take part, each with 500 images: two shards of one
class, or IID. SGD with a rate of 0.01, momentum 0.9 and weight decay 1e-3, five epochs in batches of 50, an MLP with 64
hidden units, 400 rounds, with the rate's decay of 0.01 a round and without. For each of `--seeds` (0, 1 and 2), which
draws the split, there are three trainings, over which variance and covariance are taken. After some rounds the clients
of the next one are looked at, on all 5,000 images.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsash import Federation
from fedsash.lab.config import parse
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.ima_theory import CLAIMS
from fedsash.lab.papers.ledger import Ledger
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.client_studies import over_orders
from fedsash.lab.studies.decomposition import likeness, predictions, probabilities
from fedsash.lab.studies.variance import covariances
from fedsash.vector.arrays import Ints

SETTING = "ours: FedAvg, an MLP, Fashion-MNIST, 10 clients of 500 images"
PRINTED_ROUNDS = 400
TRAININGS = 3
CLIENTS = 10
NUMBERS_OF_CLIENTS = (1, 2, 5, 10)
RATES: dict[str, dict[str, Any]] = {
    "no decay": {"name": "constant"},
    "decay 0.01": {"name": "exponential", "decay": 0.99},
}
SPLITS = {"#C = 2": False, "IID": True}
"""Whether the images are dealt at random."""
LOOKED_AT = (*range(0, 100, 20), *range(100, 400, 50), 399)
"""The rounds that are looked at, of 400; in shorter trainings those at the same share."""

Values = dict[Key, dict[str, float]]
"""Numbers by their labels and by seed."""


class Trainings:
    """The trainings of one split and one rate, which differ in their seed alone, side by side."""

    def __init__(self, data: Path, split: str, rate: str, seed: int) -> None:
        self.federations = [federation(data, split, rate, seed, training) for training in range(TRAININGS)]
        self.states = [each.start() for each in self.federations]

    def train(self) -> None:
        """One more round of each."""
        self.states = [each.round(state)[0] for each, state in zip(self.federations, self.states, strict=True)]

    def look(self) -> Round:
        """The clients of the next round, in all trainings."""
        trained = [client_models(*each) for each in zip(self.federations, self.states, strict=True)]
        first = self.federations[0]
        data = first.training_data
        w = torch.stack([models.w for models in trained])
        f, y, held = predictions(first.module, w, data, trained[0].ids)
        means = torch.stack([models.mean for models in trained])
        of_means, _, _ = predictions(first.module, means[:, None], data, trained[0].ids)
        return Round(f, y, held, trained[0].p, of_means[:, 0])

    def errors(self) -> list[float]:
        """The test error of the mean of the first K of the next round's clients, in random orders, in per cent."""
        first = self.federations[0]
        models = client_models(first, self.states[0])
        test = first.training_data.test
        assert test is not None

        def error(chosen: Ints) -> tuple[float]:
            mean = models.w[torch.from_numpy(chosen)].mean(0)
            f = probabilities(first.module, mean, test, first.training_data)
            return (100 * float((f.argmax(-1) != test.y).double().mean()),)

        (by_number,) = over_orders(error, CLIENTS, 5, 0)
        return by_number


class Round:
    """What the clients of a round answer: `f` `[R, K, n, c]` in R trainings, their mean models `of_means` `[R, n, c]`.

    `y` `[n, c]` are one-hot labels, `held` `[K, n]` says which images each client holds, `p` `[K]` are the weights.
    """

    def __init__(self, f: Tensor, y: Tensor, held: Tensor, p: Tensor, of_means: Tensor) -> None:
        self.f = f
        self.y = y
        self.held = held
        self.p = p.to(f)
        self.of_means = of_means

    def sizes(self) -> dict[str, float]:
        """What each factor adds to the mean squared error of the averaged model. Both biases have half their product.

        Theorem 1: the ensemble's error is ||sum_k p_k (TB_k + HB_k)||^2 + sum p_k^2 V_k + sum p_k p_k' Cov_kk'.
        """
        off = self.p[:, None, None] * (self.y - self.f.mean(0))
        own = (off * self.held[..., None]).sum(0)
        others = (off * ~self.held[..., None]).sum(0)
        shared = (own * others).sum(-1)
        between = torch.outer(self.p, self.p) * covariances(self.f)
        return {
            "train bias": float((own.square().sum(-1) + shared).mean()),
            "heterogeneous bias": float((others.square().sum(-1) + shared).mean()),
            "variance": float(between.diagonal().sum()),
            "covariance": float(between.sum() - between.diagonal().sum()),
            "locality": _squared_error(self.of_means, self.y) - self.error(),
        }

    def error(self) -> float:
        """The mean squared error of the ensemble."""
        return _squared_error(torch.einsum("k,rknc->rnc", self.p, self.f), self.y)

    def least_covariance(self) -> float:
        """Corollary 1's bound: (K - 1)/K times the mean over the images of the least covariance of two clients."""
        deviations = self.f - self.f.mean(0)
        by_image = torch.einsum("rknc,rlnc->nkl", deviations, deviations) / len(self.f)
        count = len(self.p)
        pairs = ~torch.eye(count, dtype=torch.bool)
        return float((count - 1) / count * by_image[:, pairs].min(1).values.mean())

    def pairs(self) -> tuple[float, float]:
        """The mean covariance of two clients, and the mean variance of one."""
        between = covariances(self.f)
        pairs = ~torch.eye(len(between), dtype=torch.bool)
        return float(between[pairs].mean()), float(between.diagonal().mean())

    def similarity(self) -> float:
        """The CKA of two clients' answers, in the mean over pairs and trainings."""
        return float(torch.tensor([likeness(answers) for answers in self.f]).mean())


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


def evidence(looked_at: Mapping[tuple[str, str, str, int], Round], errors: Values) -> dict[str, Evidence]:
    """What the claims need, from rounds by split, rate, seed and round, and the errors of means by their number."""
    size: Values = defaultdict(dict)
    similarity: Values = defaultdict(dict)
    covariance: Values = defaultdict(dict)
    error: Values = defaultdict(dict)
    bound: Values = defaultdict(dict)
    of_pairs: Values = defaultdict(dict)
    of_one: Values = defaultdict(dict)
    for (split, rate, seed, number), round in looked_at.items():
        similarity[split, rate, number][seed] = round.similarity()
        if split == "IID":
            if rate == "no decay":
                of_pairs[number,][seed], of_one[number,][seed] = round.pairs()
            continue
        sizes = round.sizes()
        for factor, value in sizes.items():
            size[rate, factor, number][seed] = value
        covariance[rate, number][seed] = sizes["covariance"]
        error[rate, number][seed] = round.error()
        bound[rate, number][seed] = round.least_covariance() / round.error()
    return {
        "C17": {"size": Numbers.measured(("run", "factor", "round"), size)},
        "C20": {"similarity": Numbers.measured(("split", "run", "round"), similarity)},
        "C23": {
            "covariance": Numbers.measured(("run", "round"), covariance),
            "error": Numbers.measured(("run", "round"), error),
        },
        "B20": {"bound": Numbers.measured(("run", "round"), bound)},
        "B23": {
            "covariance": Numbers.measured(("round",), of_pairs),
            "variance": Numbers.measured(("round",), of_one),
            "error": Numbers.measured(("clients", "round"), errors),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    looked_at: dict[tuple[str, str, str, int], Round] = {}
    errors: Values = defaultdict(dict)
    for seed in options.seeds:
        for split in SPLITS:
            for rate in RATES:
                for round, trainings in train(options.data, split, rate, seed, options.rounds):
                    looked_at[split, rate, str(seed), round] = trainings.look()
                    if split == "IID" and rate == "no decay":
                        for number, error in zip(range(1, CLIENTS + 1), trainings.errors(), strict=True):
                            if number in NUMBERS_OF_CLIENTS:
                                errors[number, round][str(seed)] = error
        print(f"seed {seed} has been run", flush=True)
    seeds = " ".join(map(str, options.seeds))
    source = f"python -m benchmarks.factors DATA FOLDER --seeds {seeds} --rounds {options.rounds}"
    for claim, numbers in evidence(looked_at, errors).items():
        setting = f"{SETTING}, {options.rounds} rounds, means over {TRAININGS} trainings"
        finding = Ledger(options.folder).enter_own("IMA", CLAIMS[claim], numbers, setting, source)
        print(f"{claim}: {finding}")


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
