"""Values of every axis, to be combined: each method with the options that change its code path, and the rest."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

from fedsash.averages import EMA, SWA, Average, Window
from fedsash.methods import (
    EWC,
    AdaBest,
    Aggregation,
    FedACG,
    FedASAM,
    FedAvg,
    FedCM,
    FedDyn,
    FedFA,
    FedGMA,
    FedLESAM,
    FedMoSWA,
    FedNova,
    FedProx,
    FedSAM,
    FedSWA,
    Method,
    Mime,
    MimeLite,
    MoFedSAM,
    Scaffold,
    WeightedMean,
)
from fedsash.methods import METHODS as REGISTERED
from fedsash.methods.sampling import FixedClients, Sampling, Uniform, Weighted
from fedsash.methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, Server, ServerSGD
from fedsash.server.broadcast import Broadcast
from fedsash.testing import examples

CHOSEN: dict[str, Method] = {
    "fedavg": FedAvg(),
    "fedavg-uniform": FedAvg(weighting="uniform"),
    "fedprox": FedProx(0.2),
    "ewc": EWC(2.0),
    "scaffold-I": Scaffold("I"),
    "scaffold-II": Scaffold("II"),
    "feddyn": FedDyn(0.3),
    "feddyn-samples": FedDyn(0.3, weighting="samples"),
    "adabest": AdaBest(0.1, 0.5),
    "adabest-code": AdaBest(0.5, 0.5, "code"),
    "fedcm": FedCM(0.3),
    "fedacg": FedACG(0.8, 0.2),
    "mime": Mime(0.5),
    "mime-sgd": Mime(0.0, weighting="samples"),
    "mimelite": MimeLite(0.5, damped=False),
    "mimelite-sgd": MimeLite(0.0),
    "fedsam": FedSAM(0.2),
    "fedasam": FedASAM(0.5, 0.2),
    "mofedsam": MoFedSAM(0.3, 0.2),
    "fedlesam": FedLESAM(0.3),
    "fedfa": FedFA(0.2, 0.7, 0.01, anchors_from=1, calibrate_from=2),
    "fedswa": FedSWA(0.2, 1.3),
    "fedmoswa-I": FedMoSWA(0.2, 1.3, 0.4, "I"),
    "fedmoswa-II": FedMoSWA(0.2, 1.3, 0.4),
}
METHODS = CHOSEN | examples(
    {name: method for name, method in REGISTERED.items() if method not in map(type, CHOSEN.values())}
)
"""Every registered method, those that are not chosen above with their defaults."""


def one_of_each(methods: Iterable[str], also: str = "scaffold-II") -> list[Any]:
    """All these methods. By default the first of each class and another that shows much; further variants are full."""
    met: set[type] = set()
    params = []
    for name in methods:
        kind = type(METHODS[name])
        variant = kind in met and name != also
        met.add(kind)
        params.append(pytest.param(name, marks=pytest.mark.full if variant else ()))
    return params


AGGREGATIONS: dict[str, Aggregation] = {
    "mean": WeightedMean(),
    "fednova": FedNova(),
    "fednova-steps": FedNova(tau="steps"),
    "fedgma": FedGMA(),
    "fedgma-hard": FedGMA(mask="hard"),
    "fedgma-code": FedGMA(mask="code"),
}
SERVERS: dict[str, Server] = {
    "sgd": ServerSGD(),
    "momentum": ServerSGD(lr=0.5, momentum=0.9),
    "adagrad": FedAdagrad(lr=0.05),
    "adam": FedAdam(lr=0.02),
    "yogi": FedYogi(lr=0.02),
}
AVERAGES: dict[str, Average] = {
    "wima": Window(3),
    "lawa": Window(2, every=2),
    "swa": SWA(start=2),
    "ema": EMA(0.9),
    "head": Window(2, part="classifier"),
}
BROADCASTS: dict[str, Broadcast | None] = {
    "none": None,
    "after": Broadcast("wima", 2),
    "before": Broadcast("wima", 2, "before"),
    "code": Broadcast("wima", 2, "code"),
    "head": Broadcast("head", 2),
    "ema": Broadcast("ema", 1),
}
SAMPLINGS: dict[str, Sampling] = {
    "uniform": Uniform(4),
    "weighted": Weighted(3),
    "fixed": FixedClients(((0, 3), (5,), (1, 2, 4))),
    "dropout": Uniform(4, dropout=0.3),
}


def chequered(one: Iterable[Any], other: Iterable[Any], of: int = 2) -> list[Any]:
    """All pairs, slow but for one `of` so many. By default each value meets that part of the others, or one of them."""
    one, other = list(one), list(other)
    of, pairs = min(of, len(one), len(other)), product(enumerate(one), enumerate(other))
    return [pytest.param(a, b, marks=pytest.mark.slow if (i + j) % of else ()) for (i, a), (j, b) in pairs]


def crossed(methods: Iterable[str], others: Iterable[str]) -> list[Any]:
    """All pairs. By default the other goes round with the first method of each class, so that each of both is met.

    In full the others are the first one, and all of them for two methods that show most; the rest is slow.
    """
    methods, others = list(methods), list(others)
    first = {type(METHODS[method]): method for method in reversed(methods)}.values()

    def pair(method: str, other: str) -> Any:
        turn = others.index(other) == methods.index(method) % len(others)
        if turn and method in first:
            return pytest.param(method, other)
        more = turn or other == others[0] or method in ("scaffold-II", "feddyn")
        return pytest.param(method, other, marks=pytest.mark.full if more else pytest.mark.slow)

    return [pair(method, other) for method, other in product(methods, others)]
