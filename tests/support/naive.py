"""A second account of every federated method: plain NumPy in float64, one client and one step at a time.

Written from the papers' equations alone, so that it shares nothing with the library but the start, who takes part, and
which samples a batch holds. The network is `Linear(4, 5), Tanh, Linear(5, 3)`; a model is a flat vector `w` `[43]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedsash.federation import Federation
from fedsash.local.batches import Batches

Array = NDArray[np.float64]
Index = NDArray[np.int64]

INPUTS, HIDDEN, CLASSES = 4, 5, 3
CLASSIFIER = slice(25, 43)
IS_WEIGHT = np.repeat([True, False, True, False], [20, 5, 15, 3])


class Net:
    """The network on all training samples `x` `[n, 4]`, `y` `[n]`; `z` `[B]` numbers those of a batch."""

    def __init__(self, x: Array, y: Index) -> None:
        self.x, self.y = x, y

    def features(self, w: Array, z: Index) -> Array:
        """What the last layer receives, `[B, 5]`."""
        return np.tanh(self.x[z] @ w[:20].reshape(HIDDEN, INPUTS).T + w[20:25])

    def loss(self, w: Array, z: Index) -> float:
        """The batch's mean cross-entropy."""
        return cross_entropy(w[CLASSIFIER], self.features(w, z), self.y[z])[0]

    def gradient(self, w: Array, z: Index, pull: Array | float = 0.0) -> Array:
        """The gradient `[43]` of the loss; `pull` `[B, 5]` is what another term of the loss asks of the features."""
        h = self.features(w, z)
        _, last, into = cross_entropy(w[CLASSIFIER], h, self.y[z])
        before = (into + pull) * (1 - h**2)
        return np.concatenate([(before.T @ self.x[z]).ravel(), before.sum(0), last])


def cross_entropy(v: Array, h: Array, y: Index) -> tuple[float, Array, Array]:
    """Mean cross-entropy of the last layer `v` `[18]` on features `h`, and its gradients by `v` and by `h`."""
    weight, bias, n = v[:15].reshape(CLASSES, HIDDEN), v[15:], np.arange(len(y))
    logits = h @ weight.T + bias
    logits = logits - logits.max(1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    error = np.exp(log_p)
    error[n, y] -= 1
    error /= len(y)
    return float(-log_p[n, y].mean()), np.concatenate([(error.T @ h).ravel(), error.sum(0)]), error @ weight


class FedAvg:
    """What a method may change; `i` is a client, `x` the model it received, `y` where it is, `z` its batch.

    `server_state` names vectors of the server (`self.c`), `client_state` those that each client keeps (row i of
    `self.c_i`). A round calls `begin`; for each client `enter`, then `direction` and `moved` in step k, then `leave`,
    which says what is sent up beside the model; and `server`, with the mean of y - x and all that was sent up, for the
    model's update. `proximal` is the constant part of a direction's slope in y, which FedNova counts.
    """

    weighting = "samples"
    server_state: tuple[str, ...] = ()
    client_state: tuple[str, ...] = ()
    proximal = 0.0

    def __init__(self, net: Net, f: Federation, w: Array, options: dict[str, Any]) -> None:
        self.net, self.clients, self.epochs, self.batch = net, f.data.clients, f.local.epochs, f.local.batch
        self.n, self.N, self.D = f.data.sizes, len(f.data.sizes), len(w)
        vars(self).update({name: np.zeros(self.D) for name in self.server_state})
        vars(self).update({f"{name}_i": np.zeros((self.N, self.D)) for name in self.client_state})
        vars(self).update(options)
        self.remember(w)

    def remember(self, w: Array) -> None: ...

    def memory(self) -> dict[str, Array]:
        own = {f"client_state/{name}": getattr(self, f"{name}_i") for name in self.client_state}
        return {name: getattr(self, name) for name in self.server_state} | own

    def sent(self, w: Array) -> Array:
        return w

    def begin(self, t: int, ids: Index, x: Array) -> None:
        self.t, self.ids, self.x, self.s = t, ids, x, len(ids)
        self.p = self.n[ids] / self.n[ids].sum() if self.weighting == "samples" else np.full(self.s, 1 / self.s)

    def factor(self, k: int, K: int) -> float:
        return 1.0

    def enter(self, i: int) -> None: ...

    def g(self, y: Array, z: Index) -> Array:
        return self.net.gradient(y, z)

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z)

    def moved(self, i: int, k: int, y: Array) -> Array:
        return y

    def leave(self, i: int, y: Array, rates: list[float]) -> Array | float:
        return 0.0

    def server(self, mean: Array, up: Array) -> Array:
        return mean

    def full(self, i: int) -> Array:
        """The gradient over all of the client's samples, at the model it received."""
        return self.net.gradient(self.x, self.clients[i])


class FedProx(FedAvg):
    def remember(self, w: Array) -> None:
        self.proximal = self.mu

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z) + self.mu * (y - self.x)


class Scaffold(FedAvg):
    weighting, server_state, client_state = "uniform", ("c",), ("c",)

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z) - self.c_i[i] + self.c

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        old = self.c_i[i].copy()
        self.c_i[i] = self.full(i) if self.option == "I" else old - self.c + (self.x - y) / sum(rates)
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
        return (self.x - y) / sum(rates)

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

    def direction(self, i: int, y: Array, z: Index) -> Array:
        return self.g(y, z) - self.c_i[i] + self.m

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        self.c_i[i] = self.full(i) if self.option == "I" else self.c_i[i] - self.m + (self.x - y) / sum(rates)
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


KINDS: dict[str, type[FedAvg]] = {kind.__name__.lower(): kind for kind in (
    FedAvg, FedProx, Scaffold, FedDyn, AdaBest, FedCM, FedACG, Mime, MimeLite, FedSAM, FedASAM, MoFedSAM, FedLESAM,
    FedFA, FedSWA, FedMoSWA, EWC,
)}  # fmt: skip


def normaliser(rates: Sequence[float], lr: float, momentum: float, mu: float) -> float:
    """FedNova's a_i: how far unit gradients bring a model down, counted in steps of rate `lr`."""
    y = buffer = 0.0
    for eta in rates:
        buffer = momentum * buffer + 1 + mu * y
        y -= eta * buffer
    return -y / lr


def aggregate(rule: dict[str, Any], p: Array, deltas: Array, a: Array, K: Array) -> Array:
    """The one update made of the clients' `deltas` `[s, D]`, weighted by `p` `[s]`."""
    if rule.get("aggregation") == "fednova":
        return (p @ a if rule["tau"] == "coefficients" else p @ K) * (p @ (deltas / a[:, None]))
    if rule.get("aggregation") == "fedgma":
        agreement = np.abs(np.sign(deltas).mean(0))
        low = agreement if rule["mask"] == "soft" else 0.0
        return np.where(agreement < rule["threshold"], low, 1.0) * (p @ deltas)
    return p @ deltas


def run(
    f: Federation,
    rounds: int,
    kind: str,
    options: dict[str, Any],
    lr: float,
    decay: float,
    momentum: float,
    weight_decay: float,
    server_lr: float,
    server_momentum: float = 0.0,
) -> dict[str, Array]:
    """The model "w" after so many rounds, the server's vectors, and the clients' memories as "client_state/..." `[N,
    ...]`.

    `options` are the method's, and may name an "aggregation" with its own: "tau", or "threshold" and "mask".
    """
    rule = {name: value for name, value in options.items() if name in ("aggregation", "tau", "threshold", "mask")}
    w = f.start().w.numpy().copy()
    net = Net(f.data.train.x.numpy(), f.data.train.y.numpy())
    method = KINDS[kind](net, f, w, {name: value for name, value in options.items() if name not in rule})
    batches = Batches(f.local.batching, f.data.clients, seed=f.seed, like=torch.empty(0, dtype=torch.float64))
    v = np.zeros_like(w)
    for t in range(rounds):
        ids = f.sampling.clients(t, f.data.sizes, f.seed)
        lr_t, x = lr * decay**t, method.sent(w)
        method.begin(t, ids, x)
        ends = []
        for i in ids:
            plan = batches.plan(t, np.array([i]), f.local.epochs)
            K = int(plan.steps[0])
            rates = [lr_t * method.factor(k, K) for k in range(K)]
            y, buffer = x, np.zeros_like(w)
            method.enter(i)
            for k in range(K):
                d = method.direction(i, y, plan.index[k, 0, : plan.count[k, 0]]) + weight_decay * y
                buffer = momentum * buffer + d
                y = method.moved(i, k, y - rates[k] * buffer)
            ends.append((y - x, normaliser(rates, lr_t, momentum, method.proximal), K, method.leave(i, y, rates)))
        deltas, a, steps, up = (np.array(column) for column in zip(*ends, strict=True))
        v = server_momentum * v + method.server(aggregate(rule, method.p, deltas, a, steps), up)
        w = x + server_lr * v
    return {"w": w} | method.memory()
