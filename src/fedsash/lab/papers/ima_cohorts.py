"""What IMA says of cohorts and of its cost, calculated without training: from labels alone, and in a tiny federation.

A cohort is the clients of one round. Each function takes the piece that decides its statement, so that another piece
shows in its numbers. Differences of label shares are total variations: half the sum over the classes of the
difference of the shares, 0 for the same labels and 1 for none in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...averages import Window
from ...client import LocalTraining
from ...client.messages import Reply
from ...data import FederatedData
from ...data.partitions import DirichletClasses, Pachinko, Shards
from ...engines import LocalEngine
from ...methods.sampling import Sampling, Uniform
from ...server.broadcast import Broadcast
from ...server.federation import Federation
from ...vector.arrays import Floats, Ints
from ..studies.coverage import covered
from .claims import Evidence
from .numbers import Key, Numbers

CIFAR10 = np.repeat(np.arange(10), 5000)
"""The labels of CIFAR-10's training samples, of which only the counts matter here."""
CIFAR100 = np.repeat(np.arange(100), 500)
COARSE = CIFAR100 // 5
"""A coarse label for five labels each, as CIFAR-100 has them."""
CLIENTS = 100
PARTICIPATIONS = (0.05, 0.1, 0.2, 0.4)
ROUNDS = 40
SEEDS = 5
P = 5
"""IMA's number of models."""

Rule: TypeAlias = Callable[..., list[Ints]]
"""A partition."""
TWO_SHARDS = Shards(CLIENTS, 2)
"""#C = 2."""
PACHINKO = Pachinko(CLIENTS, 500)
TEN = Uniform(10)


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How many samples of each class each client holds, `counts` `[N, C]`."""

    counts: Ints

    @classmethod
    def of_partition(cls, clients: Sequence[Ints], labels: Ints) -> LabelCounts:
        """The counts of a partition of these labels."""
        classes = int(labels.max()) + 1
        return cls(np.array([np.bincount(labels[index], minlength=classes) for index in clients]))

    @property
    def sizes(self) -> Ints:
        """The clients' numbers of samples, `[N]`."""
        return np.asarray(self.counts.sum(1))

    @property
    def shares(self) -> Floats:
        """Each client's shares of labels, `[N, C]`."""
        return np.asarray(self.counts / self.sizes[:, None])

    @property
    def overall(self) -> Floats:
        """The shares of labels among all samples, `[C]`."""
        return _shares(self.counts.sum(0))

    def cohorts(self, participation: float, seed: int) -> list[Ints]:
        """The cohorts of some rounds."""
        sampling = Uniform(round(participation * len(self.counts)))
        return [sampling.clients(round, self.sizes, seed) for round in range(ROUNDS)]


def variation(shares: Floats, others: Floats) -> Floats:
    """The total variation between shares of labels, along the last axis."""
    return np.asarray(np.abs(shares - others).sum(-1) / 2)


def missing_labels(partition: Rule = TWO_SHARDS) -> Evidence:
    """How far the labels of cohorts are from all labels, and what a model that knows only them gets wrong elsewhere.

    `distance`: the total variation between the labels of a cohort and of all samples. `bias`: the squared bias on the
    samples that the cohort does not hold, of the model that predicts the cohort's shares of labels. Both are means over
    the rounds, by participation.
    """
    distance: dict[Key, list[float]] = {(share,): [] for share in PARTICIPATIONS}
    bias: dict[Key, list[float]] = {(share,): [] for share in PARTICIPATIONS}
    for seed in range(SEEDS):
        label_counts = LabelCounts.of_partition(partition(CIFAR10, seed), CIFAR10)
        for share in PARTICIPATIONS:
            distances = []
            biases = []
            for ids in label_counts.cohorts(share, seed):
                ours = label_counts.counts[ids].sum(0)
                missing = label_counts.counts.sum(0) - ours
                distances.append(float(variation(_shares(ours), label_counts.overall)))
                biases.append(float(((_shares(missing) - _shares(ours)) ** 2).sum()))
            distance[(share,)].append(float(np.mean(distances)))
            bias[(share,)].append(float(np.mean(biases)))
    return {
        "distance": Numbers.measured(("participation",), distance),
        "bias": Numbers.measured(("participation",), bias),
    }


def by_samples(sizes: Ints) -> Floats:
    """The weights of the weighted mean: the clients' shares of the samples."""
    return np.asarray(sizes / sizes.sum())


def weighted_labels(weights: Callable[[Ints], Floats] = by_samples) -> Evidence:
    """What weights by samples do to the labels of a cohort, where sizes differ (Dirichlet over clients, alpha 0.1).

    `imbalance`: the weighted mean over the cohort of each client's total variation from all labels. `distance`: the
    total variation of the weighted mean of the clients' labels from all labels. Both by weights, "samples" and
    "uniform"; `weights` are the former.
    """
    kinds: dict[str, Callable[[Ints], Floats]] = {
        "samples": weights,
        "uniform": lambda sizes: by_samples(0 * sizes + 1),
    }
    imbalance: dict[Key, list[float]] = {(kind,): [] for kind in kinds}
    distance: dict[Key, list[float]] = {(kind,): [] for kind in kinds}
    for seed in range(SEEDS):
        label_counts = LabelCounts.of_partition(DirichletClasses(CLIENTS, 0.1)(CIFAR10, seed), CIFAR10)
        of_clients = variation(label_counts.shares, label_counts.overall)
        for kind, weight in kinds.items():
            single = []
            together = []
            for ids in label_counts.cohorts(0.1, seed):
                p = weight(label_counts.sizes[ids])
                single.append(float(p @ of_clients[ids]))
                together.append(float(variation(p @ label_counts.shares[ids], label_counts.overall)))
            imbalance[(kind,)].append(float(np.mean(single)))
            distance[(kind,)].append(float(np.mean(together)))
    return {
        "imbalance": Numbers.measured(("weights",), imbalance),
        "distance": Numbers.measured(("weights",), distance),
    }


def missed_samples(sampling: Sampling = TEN) -> Evidence:
    """The share of all samples that the cohorts of one round, and of P rounds together, do not hold (per cent).

    It is the mean over the windows that have all their rounds.
    """
    sizes = np.full(CLIENTS, len(CIFAR10) // CLIENTS)
    missed: dict[Key, list[float]] = {(1,): [], (P,): []}
    for seed in range(SEEDS):
        clients = TWO_SHARDS(CIFAR10, seed)
        there = np.zeros((ROUNDS, CLIENTS), dtype=np.bool_)
        for round in range(ROUNDS):
            there[round, sampling.clients(round, sizes, seed)] = True
        for rounds in (1, P):
            seen: NDArray[np.bool_] = covered(clients, there, rounds)[rounds - 1 :]
            missed[(rounds,)].append(100 * (1 - float(seen.mean())))
    return {"missed": Numbers.measured(("rounds",), missed)}


def label_skew(milder: Rule = PACHINKO) -> Evidence:
    """How far clients' labels are from all labels with CIFAR-100's classes, by a rule and by Dirichlet 0.1 per class.

    "client": the mean Euclidean distance of single clients. "cohort": the mean total variation of cohorts of ten.
    """
    distance: dict[Key, list[float]] = {}
    for seed in range(SEEDS):
        labels = [CIFAR100]
        if isinstance(milder, Pachinko):
            labels.append(COARSE)
        parts = {"Pachinko": milder(*labels, seed), "Dirichlet": DirichletClasses(CLIENTS, 0.1)(CIFAR100, seed)}
        for name, clients in parts.items():
            label_counts = LabelCounts.of_partition(clients, CIFAR100)
            of_clients = np.linalg.norm(label_counts.shares - label_counts.overall, axis=1)
            cohorts = [_shares(label_counts.counts[ids].sum(0)) for ids in label_counts.cohorts(0.1, seed)]
            of_cohorts = variation(np.array(cohorts), label_counts.overall)
            distance.setdefault(("client", name), []).append(float(of_clients.mean()))
            distance.setdefault(("cohort", name), []).append(float(of_cohorts.mean()))
    return {"distance": Numbers.measured(("of", "partition"), distance)}


def cost(models: int = P) -> Evidence:
    """What a round of IMA costs beside one of FedAvg: bytes to and from clients, who takes part, what is stored.

    `more` has the differences of a late round with IMA and the same round without it: "bytes down", "bytes up",
    "clients" (those that take part in only one of the two). `stored` is the number of models that the server keeps for
    IMA, less P. Both federations are in double precision; the window has `models` models.
    """
    more: dict[Key, float] = {}
    with _federation() as plain, _federation(models) as ima:
        ours = _round(ima)
        theirs = _round(plain)
        more[("bytes down",)] = ours["down"] - theirs["down"]
        more[("bytes up",)] = ours["up"] - theirs["up"]
        more[("clients",)] = float(len(ours["clients"] ^ theirs["clients"]))
        stored = ours["models"] - theirs["models"] - P
    return {"more": Numbers.exact(("what",), more), "stored": Numbers.exact((), {(): stored})}


def _federation(models: int = 0) -> Federation:
    """Eight clients, of whom three take part, with a linear model; with IMA if it keeps `models`."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4))
    y = rng.integers(0, 3, 40)
    model = nn.Linear(4, 3, dtype=torch.float64)
    averages = {}
    broadcast = None
    if models:
        averages["ima"] = Window(models)
        broadcast = Broadcast("ima", start=P + 2)
    return Federation(
        model,
        FederatedData.from_arrays(x, y, np.split(np.arange(40), 8), classes=3),
        local=LocalTraining(lr=0.1, batch=5),
        averages=averages,
        broadcast=broadcast,
        sampling=Uniform(3),
        engine=LocalEngine("sequential", workers=1, threads=1),
        device="cpu",
    )


def _round(federation: Federation) -> dict[str, Any]:
    """What a round in IMA's phase sends and keeps."""
    state = federation.start()
    for _ in range(P + 3):
        state, _report = federation.round(state)
    request = federation.ask(state)
    replies = [answer for answer in federation.executor.work(request) if isinstance(answer, Reply)]
    down = request.sent.nbytes + sum(value.nbytes for value in request.server_state.values())
    return {
        "down": len(request.ids) * down,
        "up": sum(value.nbytes for reply in replies for value in reply.upload.values()),
        "clients": set(request.ids.tolist()),
        "models": float(sum(len(past) for past in state.past.values())),
    }


def _shares(counts: Ints) -> Floats:
    """The share of each class, `[C]`."""
    return np.asarray(counts / counts.sum())
