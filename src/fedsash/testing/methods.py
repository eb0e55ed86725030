"""Identities of methods, server optimisers and aggregations: what makes a round."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..aggregation import Aggregation
from ..averages import Window
from ..broadcast import Broadcast
from ..data.federated import Problem
from ..exchange import Request
from ..federation import Federation
from ..local import LocalTraining
from ..methods import Method
from ..sampling import Uniform
from ..servers import Server, ServerSGD
from .equality import Comparison, close, identical, record
from .expect import expect
from .fakes import FakeClients
from .federations import check_federation
from .worlds import Point, after, small_data, small_federation, small_model

TRAINING: dict[str, Any] = {
    "local": LocalTraining(lr=0.1, batch=5, epochs=2, momentum=0.5, weight_decay=0.01),
    "averages": {"window": Window(3)},
    "broadcast": Broadcast("window", 2),
    "server": ServerSGD(lr=0.5, momentum=0.9),
}
"""Settings that use much of a federation: local momentum and decay, a server with memory, an average that is sent."""


def check_method(method: Method, tolerance: float = 1e-13, **settings: Any) -> None:
    """Check that a method keeps the identities of every method in `METHODS`, on the small federation.

    - It holds settings only: a run leaves it as it was, and it can be sent to another process.
    - A model of float32 stays one.
    - It keeps those of `check_federation`, with local momentum, a server with momentum, and a window that is broadcast.

    `settings` are those of a `Federation` that replace the ones named last. Raises `AssertionError` that names the
    identity.
    """
    expect(pickle.loads(pickle.dumps(method)) == method, method, "it must be picklable, and equal to its copy")
    before = record(method)
    _check_type({"method": method})
    expect(identical(method, before), method, "it must hold settings only: a run must leave it as it was")
    check_federation(tolerance, **TRAINING | {"method": method} | settings)


def check_server(server: Server, tolerance: float = 1e-10, **settings: Any) -> None:
    """Check that a server optimiser keeps the identities of every one in `SERVERS`.

    - A step leaves its arguments as they are, shares no memory with them, and gives the same bytes again.
    - Model and memory keep their names, shapes and types, in float32 and float64.
    - The base of a step is what was sent: from there it moves by the same distance, wherever that is.
    - It keeps those of `check_federation`; stacked clients within `tolerance`, since a server may divide by numbers
      that are close to zero.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    for dtype in (torch.float32, torch.float64):
        _check_steps(server, dtype)
    check_federation(tolerance, **{"server": server} | settings)


def _check_steps(server: Server, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    sent = torch.randn(5, dtype=torch.float64, generator=rng).to(dtype)
    state = server.init(sent)
    kinds = {name: (value.shape, value.dtype) for name, value in state.items()}
    for _ in range(3):
        delta = torch.randn(5, dtype=torch.float64, generator=rng).to(dtype)
        before = record([sent, delta, state])
        w, new = server.step(sent, delta, state)
        expect(identical([sent, delta, state], before), server, "a step must leave its arguments as they are")
        given = {value.data_ptr() for value in (sent, delta, *state.values())}
        fresh = all(value.data_ptr() not in given for value in (w, *new.values()))
        expect(fresh, server, "a step must return new tensors")
        expect(identical(server.step(sent, delta, state), (w, new)), server, "a step must give the same bytes again")
        expect(
            (w.shape, w.dtype) == (sent.shape, dtype), server, f"a step must keep the model's shape and type {dtype}"
        )
        same = {name: (value.shape, value.dtype) for name, value in new.items()} == kinds
        expect(same, server, "a step must keep the names, shapes and types of the memory")
        elsewhere = server.step(sent + 1, delta, state)[0] - (sent + 1)
        expect(close(w - sent, elsewhere, 1e-5), server, "a step must start from what was sent")
        sent, state = w, new


def check_aggregation(rule: Aggregation, tolerance: float = 1e-13, **settings: Any) -> None:
    """Check that an aggregation keeps the identities of every one in `AGGREGATIONS`.

    - If all clients agree on an update, that is the update, to a thousandth of it.
    - An upload that is not finite, or longer than its limit, is left out: the round is that of the others.
    - If no upload can be used, the round is skipped.
    - A model of float32 stays one.
    - It keeps those of `check_federation`.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    update = torch.tensor([0.3, -0.2, 0.0], dtype=torch.float64)
    agreed = close(_moved(rule, [update] * 4), update, 1e-3)
    expect(agreed, rule, "an update on which all clients agree must be the round's")
    for bad in (math.nan, math.inf, 10 * rule.limit):
        wrong = torch.tensor([bad, 0.1, 0.2], dtype=torch.float64)
        others = _moved(rule, [update, -2 * update, update, wrong])
        expect(
            _same(others, _moved(rule, [update, -2 * update, update])),
            rule,
            f"an upload that holds {bad} must be left out, and the round be that of the others",
        )
        expect(
            _same(_moved(rule, [wrong] * 3), torch.zeros_like(update)),
            rule,
            "a round without an upload that can be used must leave the model where it is",
        )
    _check_type({"aggregation": rule})
    check_federation(tolerance, **{"aggregation": rule} | settings)


def _moved(rule: Aggregation, deltas: list[Tensor]) -> Tensor:
    """How far a round moves the model, in which clients of as many samples as their number send these updates."""

    def handler(request: Request) -> dict[str, Tensor]:
        return {"delta": deltas[int(request.ids[0])]}

    clients = FakeClients(handler, np.arange(1, len(deltas) + 1), Problem(None, 2))
    start = [0.0] * len(deltas[0])
    world = Federation(Point(start), clients, aggregation=rule, sampling=Uniform(len(deltas)), device="cpu")
    return after(world, 1).w


def _same(a: Tensor, b: Tensor) -> Comparison:
    return close(a, b, 1e-12)


def _check_type(settings: dict[str, Any]) -> None:
    """A model of float32 stays one, with all that is remembered of it."""
    small = {"model": small_model(dtype=torch.float32), "data": small_data(dtype=torch.float32)}
    state = after(small_federation(**small | settings), 2)
    wrong = [name for name, tensor in state.tensors() if tensor.dtype == torch.float64 and "averages" not in name]
    expect(not wrong, settings, f"a model of float32 must stay one, and not {wrong} become float64")
