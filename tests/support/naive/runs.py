"""A run of the naive account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedsash.client.plan import Batches
from fedsash.server.federation import Federation

from .base import Array, Net
from .methods import KINDS


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
    if rule.get("aggregation") == "private":
        deltas = deltas * np.minimum(1, rule["clip"] / np.linalg.norm(deltas, axis=1, keepdims=True))
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

    `options` are the method's, and may name an "aggregation" with its own: "tau", or "threshold" and "mask", or "clip"
    and "noise" = 0.
    """
    names = ("aggregation", "tau", "threshold", "mask", "clip", "noise")
    rule = {name: value for name, value in options.items() if name in names}
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
            plan = batches.plan(t, np.array([i]), f.local.batching.workload(f.data.sizes[[i]], f.local.epochs))
            K = int(plan.steps[0])
            rates = [lr_t * method.factor(k, K) for k in range(K)]
            y, buffer = x, np.zeros_like(w)
            method.enter(i)
            for k in range(K):
                d = method.direction(i, y, plan.index[k, 0, : plan.count[k, 0]]) + weight_decay * y
                buffer = momentum * buffer + d
                y = method.moved(i, k, y - rates[k] * buffer)
            a_i = normaliser(rates, lr_t, momentum, method.proximal)
            method.reach = lr_t * a_i
            ends.append((y - x, a_i, K, method.leave(i, y, rates)))
        deltas, a, steps, up = (np.array(column) for column in zip(*ends, strict=True))
        v = server_momentum * v + method.server(aggregate(rule, method.p, deltas, a, steps), up)
        w = x + server_lr * v
    return {"w": w} | method.memory()
