"""Variance and covariance of 1, 2, ... of a round's client models (IMA, Corollary 1 and Theorem 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...runs.pictures import Axis, Panel, Picture, Points
from ...settings.errors import check, check_count
from ...vector.arrays import Ints
from .client_studies import (
    CLIENT_SAMPLES,
    ORDERS,
    ROUNDS,
    SEED,
    by_number,
    by_round,
    check_alike,
    names_of_runs,
    over_orders,
    shared_rounds,
    trained_alike,
)
from .decomposition import decompose, predictions, union
from .opened import OpenRun
from .study import Findings, OnProgress, Rows, Study, number, unseen

NUMBERS = {
    "squared_error": "squared\nerror",
    "bias": "squared\nbias",
    "variance": "vari-\nance",
    "equal": "one's\nover K",
    "covariance": "covari-\nance",
    "bound": "lower\nbound",
}
"""The numbers of K models, each with its head in a table."""


@dataclass(frozen=True)
class VarianceStudy(Study):
    """How variance and covariance of the clients' models depend on their number K, beside IMA's bounds.

    The clients of the round after each saved state train again, in all runs, as for `decompose`. For K of them with
    weights p_k of sum 1, and V_k and Cov_kk' as means over the samples of all the round's clients,

        variance = sum_k p_k^2 V_k                          V/K with equal weights, V the mean of the V_k: falls with K
        covariance = sum_{k != k'} p_k p_k' Cov_kk'  >=  bound = (1 - sum_k p_k^2) * min Cov_kk'
        squared_error = bias + variance + covariance

    With equal weights the bound is ((K-1)/K) min Cov (IMA, Corollary 1). With unequal ones both hold with the effective
    number 1 / sum_k p_k^2 in K's place, which is at most K: the variance falls more slowly. `equal` is V/K, with which
    the variance can be compared. All are lists by K, means over the first K clients in `orders` random orders, which
    `seed` draws.

    `variances` are the V_k of the clients `ids`, `distances` the MMD^2 of their labels from those of all the round's
    clients (see `label_mmd`), `correlation` that of the two over the clients, None if either is constant. IMA's Theorem
    2 has the MMD in the kernel of the model's features; labels stand for it here. Raises `ValueError` for one run alone
    or different partitions.
    """

    kinds: ClassVar = ("variance",)
    takes: ClassVar = "together"
    examples: ClassVar = """\
  fedsash variance runs/a runs/b runs/c            runs with the same partition, at every round that all have saved
  fedsash variance runs/a runs/b --rounds 10,100 --orders 20
"""

    rounds: tuple[int, ...] | None = field(default=None, metadata=ROUNDS)
    orders: int = field(default=5, metadata=ORDERS)
    samples: int | None = field(default=None, metadata=CLIENT_SAMPLES)
    seed: int = field(default=0, metadata=SEED)

    def __post_init__(self) -> None:
        check_count("VarianceStudy.orders", self.orders)
        check_count("VarianceStudy.seed", self.seed, least=0)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        check(len(runs) > 1, "runs", len(runs), "the variance is that over several runs with the same partition")
        check_alike(runs)
        rounds = shared_rounds(runs, self.rounds)
        return {
            "title": f"{names_of_runs(runs)}: variance and covariance by the number of clients",
            "split": "train",
            "runs": len(runs),
            **by_round(rounds, lambda round: self._measured(runs, round), progress),
        }

    def _measured(self, runs: Sequence[OpenRun], round: int) -> dict[str, Any]:
        """The numbers of one round."""
        trained = trained_alike(runs, round)
        federation = runs[0].federation
        ids = trained[0].ids
        w = torch.stack([models.w for models in trained])
        f, targets, held = predictions(
            federation.module, w, federation.training_data, ids, self.samples, federation.layout
        )
        all_clients = Group(f, targets, held, trained[0].p.to(f))
        numbers = over_orders(all_clients.numbers, len(ids), self.orders, self.seed)
        samples, held_of_all = union(federation.training_data, ids)  # of all samples, also if `samples` limits them
        variances = all_clients.covariances.diagonal()
        distances = label_mmd(one_hot(samples.y).to(f), held_of_all)
        return {
            **dict(zip(NUMBERS, numbers, strict=True)),
            "ids": ids,
            "variances": variances,
            "distances": distances,
            "correlation": _correlation(variances, distances),
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        heads = {name: head for name, head in NUMBERS.items() if name != "bias"}
        yield ["saved\nround", "models", *heads.values(), "V_k with\nMMD"]
        for place, round in enumerate(findings["rounds"]):
            last = len(findings["variance"][place]) - 1
            for k in sorted({0, last}):
                cells = [number(findings[name][place][k], 2) for name in heads]
                correlation = findings["correlation"][place] if k == last else None
                yield [str(round), str(k + 1), *cells, number(correlation, 2)]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """The terms by the number of models, and each client's variance by the distance of its data."""
        size = Axis("K, the number of models", whole=True)
        variance = Axis("variance", log=True)
        covariance = Axis("covariance")
        error = Axis("squared error", low=0)
        clients = Points([str(i) for i in findings["ids"][-1]], findings["distances"][-1], findings["variances"][-1])
        distance = Axis("MMD² of the labels")
        of_client = Axis("variance of the model", low=0)
        panels = [
            Panel("variance", size, variance, by_number(findings, "variance", "equal", "V/K")),
            Panel("covariance and its bound", size, covariance, by_number(findings, "covariance", "bound", "bound")),
            Panel("squared error and bias", size, error, by_number(findings, "squared_error", "bias", "bias")),
            Panel("variance by distance of the data", distance, of_client, [clients]),
        ]
        caption = (
            "Variance and covariance of K client models over runs, after a saved round, beside the mean variance of "
            "one over K and the lower bound of the covariance; the last panel shows each client after the last round."
        )
        return Picture(findings["title"], panels, columns=4, caption=caption)


def covariances(f: Tensor) -> Tensor:
    """E <f_k - E f_k, f_k' - E f_k'> of predictions `f` `[R, K, n, c]`, as the mean over the samples, `[K, K]`.

    E is the mean over the R runs (with 1/R). The diagonal holds the models' variances V_k.
    """
    deviations = (f - f.mean(0)).transpose(0, 1).flatten(1)
    return deviations @ deviations.mT / (f.shape[0] * f.shape[2])


def covariance_bound(covariances: Tensor, p: Tensor) -> float:
    """The least that sum_{k != k'} p_k p_k' Cov_kk' can be: (1 - sum_k p_k^2) * min Cov_kk'. 0 for one model.

    With equal weights it is ((K-1)/K) * min Cov, IMA's Corollary 1. `covariances` `[K, K]`, weights `p` `[K]` of sum 1.
    """
    if len(p) == 1:
        return 0.0
    others = covariances[~torch.eye(len(p), dtype=torch.bool)]
    return float((1 - p.square().sum()) * others.min())


def label_mmd(y: Tensor, held: Tensor) -> Tensor:
    """MMD^2 between each client's labels and all labels, `[K]`, with the kernel 1 for equal labels and 0 for others:

        MMD^2(D_k, D) = sum_c (share of class c in D_k - its share in D)^2

    `y` are one-hot labels `[n, c]`, `held` bool `[K, n]` says who holds which sample.
    """
    shares = held.to(y) @ y / held.sum(1, keepdim=True)
    return (shares - y.mean(0)).square().sum(-1)


@dataclass(frozen=True, eq=False)
class Group:
    """What `decompose` needs of client models: `f` `[R, K, n, c]`, `y` `[n, c]`, `held` `[K, n]`, `p` `[K]`."""

    f: Tensor
    y: Tensor
    held: Tensor
    p: Tensor

    @property
    def covariances(self) -> Tensor:
        return covariances(self.f)

    def numbers(self, chosen: Ints) -> tuple[float, ...]:
        """The numbers of `NUMBERS` for some of the models, by their places."""
        index = torch.from_numpy(chosen)
        f = self.f[:, index]
        p = self.p[index] / self.p[index].sum()
        parts = decompose(f, self.y, self.held[index], p)
        between = covariances(f)
        return (
            float(parts.error.mean()),
            float(parts.bias.mean()),
            float(parts.variance.mean()),
            float(between.diagonal().mean()) / len(p),
            float(parts.covariance.mean()),
            covariance_bound(between, p),
        )


def _correlation(x: Tensor, y: Tensor) -> float | None:
    """Pearson's correlation, None if it is not defined."""
    if len(x) < 2 or _constant(x) or _constant(y):
        return None
    return float(torch.corrcoef(torch.stack([x, y]))[0, 1])


def _constant(x: Tensor) -> bool:
    """Whether all values are equal but for rounding."""
    return float(x.std()) <= 1e-9 * float(x.abs().max())
