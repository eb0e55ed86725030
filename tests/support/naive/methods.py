"""The methods of the naive account, by the names of the library's."""

from __future__ import annotations

import numpy as np

from .base import CLASSES, CLASSIFIER, HIDDEN, IS_WEIGHT, Array, FedAvg, Index, cross_entropy


class FedProx(FedAvg):
    def remember(self, w: Array) -> None:
        self.proximal = self.mu

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z) + self.mu * (y - self.x)


class Scaffold(FedAvg):
    weighting, server_state, client_state = "uniform", ("c",), ("c",)

    def enter(self, i: int) -> None:
        self.raw: list[Array] = []

    def direction(self, i: int, y: Array, z: Index) -> Array:
        self.raw.append(self.g(y, z))
        return self.raw[-1] - self.c_i[i] + self.c

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        old = self.c_i[i].copy()
        self.c_i[i] = {
            "I": self.full(i),
            "II": old - self.c + (self.x - y) / self.reach,
            "raw": np.average(self.raw, axis=0, weights=rates),
        }[self.option]
        return self.c_i[i] - old

    def server(self, mean: Array, up: Array) -> Array:
        self.c = self.c + up.sum(0) / self.N
        return mean


class FedDyn(FedAvg):
    weighting, server_state, client_state = "uniform", ("h",), ("g",)

    def remember(self, w: Array) -> None:
        self.proximal = self.alpha

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z) - self.g_i[i] + self.alpha * (y - self.x)

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        self.g_i[i] -= self.alpha * (y - self.x)
        return y - self.x

    def server(self, mean: Array, up: Array) -> Array:
        self.h = self.h - self.alpha / self.N * up.sum(0)
        return mean - self.h / self.alpha


class AdaBest(FedAvg):
    """The code keeps h_i without mu, and applies it with mu * E * m_bar / n_i when it is used."""

    weighting, server_state, client_state = "uniform", ("avg",), ("h",)

    def remember(self, w: Array) -> None:
        self.avg, self.last, self.ratios = w, np.full(self.N, -1), []

    def begin(self, t: int, ids: Index, x: Array) -> None:
        super().begin(t, ids, x)
        self.m_bar = np.mean(self.ratios) if self.ratios else 0.0

    def direction(self, i: int, y: Array, z: Index) -> Array:
        strength = self.mu / self.n[i] * self.m_bar * self.epochs if self.variant == "code" else 1.0
        return self.g(y, z) - strength * self.h_i[i]

    def leave(self, i: int, y: Array, rates: list[float]) -> float:
        mu = 1.0 if self.variant == "code" else self.mu
        self.h_i[i] = self.h_i[i] / (self.t - self.last[i]) + mu * (self.x - y)
        self.last[i] = self.t
        self.ratios.append(self.epochs * self.n[i] / len(rates))
        return 0.0

    def server(self, mean: Array, up: Array) -> Array:
        old, self.avg = self.avg, self.x + mean
        h = self.beta * (old - self.avg)
        return self.avg - h - self.x


class FedCM(FedAvg):
    weighting, server_state = "uniform", ("Delta",)

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.alpha * self.g(y, z) + (1 - self.alpha) * self.Delta

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        return (self.x - y) / self.reach

    def server(self, mean: Array, up: Array) -> Array:
        self.Delta = self.p @ up
        return mean


class FedACG(FedAvg):
    weighting, server_state = "uniform", ("m",)

    def remember(self, w: Array) -> None:
        self.proximal = self.beta

    def sent(self, w: Array) -> Array:
        return w + self.lam * self.m

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z) + self.beta * (y - self.x)

    def server(self, mean: Array, up: Array) -> Array:
        self.m = self.lam * self.m + mean
        return mean


class MimeLite(FedAvg):
    """With beta = 0 it is the variant with ServerSGD, whose server remembers nothing."""

    weighting = "uniform"

    def remember(self, w: Array) -> None:
        self.server_state = ("m",) if self.beta else ()
        self.m = np.zeros(self.D)

    def begin(self, t: int, ids: Index, x: Array) -> None:
        super().begin(t, ids, x)
        self.c = self.p @ np.array([self.full(i) for i in ids])
        self.share = 1 - self.beta if self.damped else 1.0

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.share * self.g(y, z) + self.beta * self.m

    def server(self, mean: Array, up: Array) -> Array:
        self.m = self.beta * self.m + self.share * self.c
        return mean


class Mime(MimeLite):
    def g(self, y: Array, z: Index) -> Array:
        return self.net.gradient(y, z) - self.net.gradient(self.x, z) + self.c


class FedSAM(FedAvg):
    def g(self, y: Array, z: Index) -> Array:
        g = self.net.gradient(y, z)
        return self.net.gradient(y + self.rho * g / np.linalg.norm(g), z)


class FedASAM(FedAvg):
    def g(self, y: Array, z: Index) -> Array:
        g, T = self.net.gradient(y, z), np.where(IS_WEIGHT, np.abs(y) + self.eta, 1.0)
        return self.net.gradient(y + self.rho * T**2 * g / np.linalg.norm(T * g), z)


class MoFedSAM(FedCM):
    g = FedSAM.g


class FedLESAM(FedAvg):
    """Rows of `old_i` are not numbers until their client has taken part."""

    weighting, client_state = "uniform", ("old",)

    def remember(self, w: Array) -> None:
        self.old_i = np.full((self.N, self.D), np.nan)

    def enter(self, i: int) -> None:
        way = self.old_i[i] - self.x
        length = np.linalg.norm(way)
        self.e = self.rho * way / length if length > 0 else np.zeros(self.D)

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y + self.e, z)

    def leave(self, i: int, y: Array, rates: list[float]) -> float:
        self.old_i[i] = self.x
        return 0.0


class FedFA(FedAvg):
    server_state = ("anchors",)

    def remember(self, w: Array) -> None:
        self.anchors = np.eye(HIDDEN)[:CLASSES]

    def enter(self, i: int) -> None:
        self.own, self.mean = self.anchors.copy(), np.zeros((CLASSES, HIDDEN))
        self.adam = np.zeros(18), np.zeros(18)

    def direction(self, i: int, y: Array, z: Index) -> Array:
        h, labels = self.net.features(y, z), self.net.y[z]
        batches = -(-self.n[i] // self.batch)
        for c in np.unique(labels):
            self.mean[c] += h[labels == c].mean(0) / batches
        lam = self.lam if self.t >= self.anchors_from else 0.0
        count = np.bincount(labels)[labels][:, None]
        return self.net.gradient(y, z, pull=lam / CLASSES * 2 * (h - self.anchors[labels]) / count)

    def moved(self, i: int, k: int, y: Array) -> Array:
        if (k + 1) % -(-self.n[i] // self.batch) == 0:
            for c in np.unique(self.net.y[self.clients[i]]):
                self.own[c] = self.momentum * self.own[c] + (1 - self.momentum) * self.mean[c]
            self.mean = np.zeros((CLASSES, HIDDEN))
        if self.t < self.calibrate_from or not self.calibration:
            return y
        _, g, _ = cross_entropy(y[CLASSIFIER], self.anchors, np.arange(CLASSES))
        m, v = self.adam = 0.9 * self.adam[0] + 0.1 * g, 0.999 * self.adam[1] + 0.001 * g**2
        step = m / (1 - 0.9 ** (k + 1)) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
        return np.concatenate([y[:25], y[CLASSIFIER] - self.calibration * step])

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        return self.own

    def server(self, mean: Array, up: Array) -> Array:
        self.anchors = np.tensordot(self.p, up, 1)
        return mean


class FedSWA(FedAvg):
    weighting = "uniform"

    def factor(self, k: int, K: int) -> float:
        return 1 - k / K + k / K * self.rho

    def server(self, mean: Array, up: Array) -> Array:
        return self.alpha * mean


class FedMoSWA(FedSWA):
    server_state, client_state = ("m",), ("c",)

    def enter(self, i: int) -> None:
        self.raw: list[Array] = []

    def direction(self, i: int, y: Array, z: Index) -> Array:
        self.raw.append(self.g(y, z))
        return self.raw[-1] - self.c_i[i] + self.m

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        self.c_i[i] = {
            "I": self.full(i),
            "II": self.c_i[i] - self.m + (self.x - y) / self.reach,
            "raw": np.average(self.raw, axis=0, weights=rates),
        }[self.option]
        return self.c_i[i] - self.m

    def server(self, mean: Array, up: Array) -> Array:
        self.m = self.m + self.gamma / self.s * up.sum(0)
        return self.alpha * mean


class EWC(FedAvg):
    server_state = ("fisher",)

    def enter(self, i: int) -> None:
        self.squares: list[Array] = []

    def direction(self, i: int, y: Array, z: Index) -> Array:
        g = self.g(y, z)
        self.squares.append(g**2)
        return g + self.mu * self.fisher * (y - self.x)

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        return np.mean(self.squares, axis=0)

    def server(self, mean: Array, up: Array) -> Array:
        self.fisher = self.p @ up
        return mean


KINDS: dict[str, type[FedAvg]] = {
    name.lower(): kind for name, kind in vars().items() if isinstance(kind, type) and issubclass(kind, FedAvg)
}
"""Every method above by its name in the library."""
