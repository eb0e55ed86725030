"""The network of the naive account, and FedAvg, of which every method says how it differs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsash.server.federation import Federation

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
    model's update. `proximal` is the constant part of a direction's slope in y, which FedNova counts. `reach` is how
    far directions of 1 bring the client that leaves.
    """

    weighting = "samples"
    server_state: tuple[str, ...] = ()
    client_state: tuple[str, ...] = ()
    proximal = 0.0
    reach = 0.0

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
