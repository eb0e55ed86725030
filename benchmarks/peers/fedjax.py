"""FedJAX: its own `federated_averaging` on the jit backend of `for_each_client`, which is its choice on one machine.

XLA uses both cores. The networks are those of `modules` in JAX, images as N x H x W x C, as JAX has them. All sizes of
batches are compiled before the first round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import fedjax as fj
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms.fed_avg import federated_averaging
from jax import lax

from .clock import Clock
from .works import PER_ROUND, Given

Params = list[Any]


def linear(params: Params, x: Any) -> Any:
    """The next two parameters, which are taken off the list."""
    return x @ params.pop(0) + params.pop(0)


def convolution(w: Any, x: Any, padding: int, stride: int = 1) -> Any:
    sides = [(padding, padding)] * 2
    return lax.conv_general_dilated(x, w, (stride, stride), sides, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def flattened(x: Any) -> Any:
    """Flat with the channels first, as PyTorch's weights expect."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def mlp(params: Params, x: Any) -> Any:
    return linear(params, jax.nn.relu(linear(params, x)))


def cnn(padding: int, layers: int) -> Callable[[Params, Any], Any]:
    """Two times conv5x5, ReLU, pool; then so many linear layers with ReLU between."""

    def net(params: Params, x: Any) -> Any:
        for _ in range(2):
            x = pooled(jax.nn.relu(convolution(params.pop(0), x, padding) + params.pop(0)))
        x = flattened(x)
        for _ in range(layers - 1):
            x = jax.nn.relu(linear(params, x))
        return linear(params, x)

    return net


def normalised(params: Params, x: Any, groups: int = 2) -> Any:
    n, h, w, c = x.shape
    split = x.reshape(n, h, w, groups, c // groups)
    mean = split.mean((1, 2, 4), keepdims=True)
    var = split.var((1, 2, 4), keepdims=True)
    return ((split - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * params.pop(0) + params.pop(0)


def resnet20(params: Params, x: Any) -> Any:
    x = jax.nn.relu(normalised(params, convolution(params.pop(0), x, 1)))
    for width in (16, 32, 64):
        for _ in range(3):
            stride = width // x.shape[-1]
            z = jax.nn.relu(normalised(params, convolution(params.pop(0), x, 1, stride)))
            z = normalised(params, convolution(params.pop(0), z, 1))
            more = (width - x.shape[-1]) // 2
            x = jax.nn.relu(z + jnp.pad(x[:, ::stride, ::stride], [(0, 0)] * 3 + [(more, more)]))
    return linear(params, x.mean((1, 2)))


def shakespeare(params: Params, x: Any) -> Any:
    x = params.pop(0)[x.T]
    for _ in range(2):
        from_x, from_h, bias = (params.pop(0) for _ in range(3))

        def step(carry: Any, z: Any, from_h: Any = from_h) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(z + h @ from_h, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], from_h.shape[0]))
        x = jnp.tanh(lax.scan(step, (zero, zero), x @ from_x + bias)[1])
    return linear(params, x).transpose(1, 0, 2)


NETS = {"W1": mlp, "W2": cnn(2, 2), "W3": cnn(0, 3), "W4": resnet20, "W5": cnn(2, 2), "W6": shakespeare}


def to_jax(values: list[np.ndarray], embedding: bool) -> Params:
    """Convolutions from O, I, H, W to H, W, I, O; matrices transposed, but for an embedding."""
    orders = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}
    return [v if embedding and not i else v.transpose(orders[v.ndim]) for i, v in enumerate(values)]


def to_torch(values: Params, embedding: bool) -> list[np.ndarray]:
    """The way back."""
    orders = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    arrays = [np.asarray(v) for v in values]
    return [v if embedding and not i else v.transpose(orders[v.ndim]) for i, v in enumerate(arrays)]


class Client:
    """A client's data set. FedJAX's own fills the last batch up with samples that have been seen; here it is short."""

    def __init__(self, given: Given, number: int, rng: np.random.Generator) -> None:
        self.given = given
        self.number = number
        self.rng = rng

    def __len__(self) -> int:
        return int(self.given.clients[self.number, 1])

    def shuffle_repeat_batch(self, _: Any) -> Iterator[dict[str, Any]]:
        x, y = self.given.client(self.number)
        x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
        return ({"x": x[index], "y": y[index]} for index in self.given.orders(self.number, self.rng))


def run(given: Given, clock: Clock, seed: int) -> None:
    work = given.work
    net = NETS[given.work.name]

    def loss(params: Params, batch: Any, rng: Any) -> Any:
        scores = jax.nn.log_softmax(net(list(params), batch["x"]))
        return -jnp.take_along_axis(scores, batch["y"][..., None], -1).mean()

    def clients(numbers: Any) -> list[Any]:
        return [(number, Client(given, number, rng), jax.random.fold_in(key, number)) for number in numbers]

    key = jax.random.PRNGKey(seed)
    rng = np.random.default_rng(seed)
    algorithm = federated_averaging(
        jax.grad(loss),
        fj.optimizers.sgd(work.lr, work.momentum or None),
        fj.optimizers.sgd(1.0),
        fj.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs),
    )
    embedding = work.name == "W6"
    params = jax.tree_util.tree_map(jnp.asarray, to_jax(given.weights, embedding))
    rest = {int(size) % work.batch: number for number, size in enumerate(given.clients[:, 1])}
    algorithm.apply(algorithm.init(params), clients(rest.values()))
    state = algorithm.init(params)
    while True:
        chosen = rng.choice(len(given.clients), PER_ROUND, replace=False).tolist()
        state, _ = algorithm.apply(state, clients(chosen))
        jax.block_until_ready(state.params)
        clock.round(given.samples(chosen), lambda now=state.params: to_torch(now, embedding))
