"""Flower's strategies by hand: their server steps in NumPy, on models that are one vector `[d]` in float64.

Seven nodes answer with half of the way to a target of their own. Node p has p + 1 samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NODES = 7
SAMPLES = np.arange(1.0, NODES + 1)
TARGETS = np.array([[p + 1.0, -1.0 - p * p, 0.25 * p, 2.0 - p, 0.5] for p in range(NODES)])
CLIP = 1.5


def trained(sent: Floats, node: int) -> Floats:
    """What a node answers."""
    return sent - 0.5 * (sent - TARGETS[node])


def loss(sent: Floats, node: int) -> float:
    """The loss that a node reports."""
    return float(0.5 * np.square(sent - TARGETS[node]).sum())


def answers(sent: Floats) -> Floats:
    return np.stack([trained(sent, node) for node in range(NODES)])


def mean(models: Floats, weights: Floats = SAMPLES) -> Floats:
    return np.asarray((weights[:, None] * models).sum(0) / weights.sum())


Step = Callable[[Floats, int], Floats]
"""From what was sent and the number of the round to the strategy's next model."""


def fedavg(sent: Floats, round: int) -> Floats:
    return mean(answers(sent))


class Momentum:
    """FedAvgM with the rate 0.7 and the momentum 0.9."""

    def __init__(self) -> None:
        self.m: Floats | None = None

    def __call__(self, sent: Floats, round: int) -> Floats:
        down = sent - mean(answers(sent))
        self.m = down if self.m is None else 0.9 * self.m + down
        return np.asarray(sent - 0.7 * self.m)


class Adaptive:
    """FedAdagrad, FedAdam and FedYogi: `second` moves v by d^2, `rate` is that of a round."""

    def __init__(self, beta: float, second: Callable[[Floats, Floats], Floats], rate: Callable[[int], float]) -> None:
        self.beta, self.second, self.rate = beta, second, rate
        self.m = self.v = np.zeros(len(TARGETS[0]))

    def __call__(self, sent: Floats, round: int) -> Floats:
        d = mean(answers(sent)) - sent
        self.m = self.beta * self.m + (1 - self.beta) * d
        self.v = self.second(self.v, d * d)
        return np.asarray(sent + self.rate(round) * self.m / (np.sqrt(self.v) + 1e-3))


def fedmedian(sent: Floats, round: int) -> Floats:
    return np.asarray(np.sort(answers(sent), axis=0)[NODES // 2])


def trimmed(sent: Floats, round: int) -> Floats:
    return np.asarray(np.sort(answers(sent), axis=0)[1:-1].mean(0))


def nearest(models: Floats, count: int) -> list[int]:
    """The `count` models with the least sum of squared distances to their n - f - 2 = 4 nearest ones."""
    apart = np.array([[np.square(a - b).sum() for b in models] for a in models])
    scores = [np.sort(row)[1:5].sum() for row in apart]
    return [int(i) for i in np.argsort(scores)[:count]]


def krum(sent: Floats, round: int) -> Floats:
    return np.asarray(answers(sent)[nearest(answers(sent), 1)[0]])


def multikrum(sent: Floats, round: int) -> Floats:
    best = nearest(answers(sent), 3)
    return mean(answers(sent)[best], SAMPLES[best])


def bulyan(sent: Floats, round: int) -> Floats:
    """Of n - 2f = 5 models, in each entry the mean of the 3 values that are nearest to their median."""
    chosen = answers(sent)[nearest(answers(sent), 5)]
    order = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0)[:3]
    return np.asarray(np.take_along_axis(chosen, order, axis=0).mean(0))


def qfedavg(sent: Floats, round: int) -> Floats:
    """q = 0.2 and the clients' rate 0.5, so L = 2."""
    rise, steepness = np.zeros_like(sent), 0.0
    for node in range(NODES):
        gradient, power = 2.0 * (sent - trained(sent, node)), (loss(sent, node) + 1e-10) ** 0.2
        rise += power * gradient
        steepness += 0.2 * (loss(sent, node) + 1e-10) ** -0.8 * np.square(gradient).sum() + 2.0 * power
    return np.asarray(sent - rise / steepness)


def clipped(sent: Floats, norm: float) -> tuple[Floats, float]:
    """The mean of the shortened updates, added to what was sent, and the share of updates that were too long."""
    updates = answers(sent) - sent
    lengths = np.linalg.norm(updates, axis=1)
    short = np.minimum(1, norm / lengths)
    return sent + mean(short[:, None] * updates), float((short < 1).mean())


def fixed(sent: Floats, round: int) -> Floats:
    return clipped(sent, CLIP)[0]


class AdaptiveClip:
    """The clip norm follows the median of the lengths."""

    def __init__(self) -> None:
        self.norm = CLIP

    def __call__(self, sent: Floats, round: int) -> Floats:
        model, share = clipped(sent, self.norm)
        self.norm *= np.exp(-0.2 * (share - 0.5))
        return model


def _adam_rate(round: int) -> float:
    return float(0.1 * np.sqrt(1 - 0.99 ** (round + 1.0)) / (1 - 0.9 ** (round + 1.0)))


FIXED: dict[str, Any] = {"noise_multiplier": 0.0, "clipping_norm": CLIP, "num_sampled_clients": NODES}
MOVING: dict[str, Any] = {"noise_multiplier": 0.0, "initial_clipping_norm": CLIP, "num_sampled_clients": NODES}

STRATEGIES: dict[str, tuple[dict[str, Any], Callable[[], Step]]] = {
    "FedAvg": ({}, lambda: fedavg),
    "FedProx": ({"proximal_mu": 0.1}, lambda: fedavg),
    "FedAvgM": ({"server_learning_rate": 0.7, "server_momentum": 0.9}, Momentum),
    "FedAdagrad": ({"eta": 0.1}, lambda: Adaptive(0.0, lambda v, dd: v + dd, lambda r: 0.1)),
    "FedAdam": ({"eta": 0.1}, lambda: Adaptive(0.9, lambda v, dd: 0.99 * v + 0.01 * dd, _adam_rate)),
    "FedYogi": (
        {"eta": 0.1, "beta_1": 0.9, "beta_2": 0.99},
        lambda: Adaptive(0.9, lambda v, dd: v - 0.01 * dd * np.sign(v - dd), lambda r: 0.1),
    ),
    "FedMedian": ({}, lambda: fedmedian),
    "FedTrimmedAvg": ({"beta": 0.2}, lambda: trimmed),
    "Krum": ({"num_malicious_nodes": 1}, lambda: krum),
    "MultiKrum": ({"num_malicious_nodes": 1, "num_nodes_to_select": 3}, lambda: multikrum),
    "Bulyan": ({"num_malicious_nodes": 1}, lambda: bulyan),
    "QFedAvg": ({"client_learning_rate": 0.5, "q": 0.2}, lambda: qfedavg),
    "DifferentialPrivacyServerSideFixedClipping": (FIXED, lambda: fixed),
    "DifferentialPrivacyClientSideFixedClipping": (FIXED, lambda: fixed),
    "DifferentialPrivacyServerSideAdaptiveClipping": (MOVING, AdaptiveClip),
    "DifferentialPrivacyClientSideAdaptiveClipping": (MOVING, AdaptiveClip),
}
"""Flower's name of each strategy, the arguments that it is made with, and its step by hand. Wrappers are of FedAvg."""

MEMORIES = ("FedYogi", "QFedAvg", "DifferentialPrivacyClientSideAdaptiveClipping")
"""Strategies that remember moments, the last model, and a norm inside another strategy."""
REFUSED = ("FedXgbBagging", "FedXgbCyclic")
