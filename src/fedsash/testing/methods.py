"""Identities of the parts of a round: methods, server optimisers and aggregations."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..averages import Window
from ..client import SGD, LocalTraining
from ..client.messages import Request
from ..methods import Aggregation, Method
from ..methods.sampling import Uniform
from ..methods.server_optimisers import Server, ServerSGD
from ..server.broadcast import Broadcast
from ..server.federation import Federation
from ..vector.arrays import Vectors
from ..vector.spaces import CommonPart, OptimiserState
from .equality import Record, close, expect, identical, in_one_sentence, record
from .fakes import FakeClients
from .federations import check_federation, check_named
from .worlds import SEQUENTIAL, Point, after, small_data, small_federation, small_model

TRAINING: dict[str, Any] = {
    "local": LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5, weight_decay=0.01)),
    "averages": {"window": Window(3)},
    "broadcast": Broadcast("window", 2),
    "server": ServerSGD(lr=0.5, momentum=0.9),
}
"""Settings with many parts: local momentum and weight decay, a server with momentum, an average that is broadcast."""


def check_method(method: Method, tolerance: float = 1e-13, **settings: Any) -> None:
    """Check that a method keeps the identities of every method in `METHODS`, on the small federation.

    - It holds settings only: a run does not change it, and it can be sent to another process.
    - Its hooks do not change their arguments, except `Step.w` in `after_step`, and the `round_state`.
    - A model in float32 stays in float32.
    - It keeps the identities of `check_federation`, with local momentum, a server with momentum, and a window that is
      broadcast.

    `settings` are those of a `Federation`; they replace the settings named last. Raises `AssertionError` that names the
    identity.
    """
    with in_one_sentence(method):
        with in_one_sentence(method, "it must be picklable"):
            copied = pickle.loads(pickle.dumps(method))
        expect(copied == method, method, "it must be equal to its pickled copy")
        before = record(method)
        names = set(vars(method))
        named = {"method": method} | settings
        _check_arguments(method, settings)
        _check_type(named)
        is_unchanged = names == set(vars(method)) and identical(method, before)
        expect(is_unchanged, method, "it must hold settings only: a run must not change it")
        check_named(named, tolerance, TRAINING | named)


def _check_arguments(method: Method, settings: dict[str, Any]) -> None:
    """Check that the hooks leave their arguments as they are, in a run whose method compares them after each call."""
    watchable = method.overridden - {"objective"}  # whose tensors, in a transform of torch.func, can't be copied out
    hooks: dict[str, Any] = {hook: _watched(method, hook) for hook in watchable}
    watching = copy.copy(method)
    watching_class = type(type(method).__name__, (type(method),), hooks)
    object.__setattr__(watching, "__class__", watching_class)
    watched: dict[str, Any] = {"method": watching, "engine": SEQUENTIAL}
    after(small_federation(**TRAINING | settings | watched), 2)


def _watched(method: Method, hook: str) -> Callable[..., Any]:
    """The hook of a method, which raises `AssertionError` if a call changes an argument that it must not change."""
    call = getattr(type(method), hook)
    changeable = {"round_state"}
    if hook == "after_step":
        changeable.add("w")

    def watched(self: Method, *arguments: Any) -> Any:
        before = _copied(arguments, changeable)
        result = call(self, *arguments)
        is_unchanged = identical(_copied(arguments, changeable), before)
        expect(is_unchanged, method, f"{hook} must not change its arguments")
        return result

    return watched


def _copied(arguments: Sequence[Any], changeable: Collection[str]) -> Record:
    """A copy of a hook's arguments and their tensors, without the fields that it may change."""
    unchangeable: list[Any] = []
    for argument in arguments:
        if is_dataclass(argument):
            unchangeable.append({name: value for name, value in vars(argument).items() if name not in changeable})
        else:
            unchangeable.append(argument)
    return record(unchangeable)


def check_server(server: Server, tolerance: float = 1e-10, **settings: Any) -> None:
    """Check that a server optimiser keeps the identities of every server optimiser in `SERVERS`.

    - A step does not change its arguments, shares no memory with them, and can be repeated bitwise.
    - Model and server state keep their names, shapes and types, in float32 and float64.
    - A step starts from the model that was sent, and its length does not depend on that model. The first one goes along
      the update, which is added: a server that subtracts it climbs.
    - It keeps the identities of `check_federation`, for stacked clients within `tolerance`, because a server may divide
      by numbers close to zero.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(server):
        expect(isinstance(server, Server), server, "it must be a Server")
        for dtype in (torch.float32, torch.float64):
            _check_steps(server, dtype)
        parts: dict[str, Any] = {"server": server}
        check_federation(tolerance, **parts | settings)


def _check_steps(server: Server, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    sent = CommonPart(torch.randn(5, dtype=torch.float64, generator=rng).to(dtype))
    state = OptimiserState(server.init(sent))
    kinds = _kinds(state)
    for number in range(3):
        delta = CommonPart(torch.randn(5, dtype=torch.float64, generator=rng).to(dtype))
        before = record([sent, delta, state])
        w, new = server.step(sent, delta, state)
        expect(identical([sent, delta, state], before), server, "a step must not change its arguments")
        addresses = {value.untyped_storage().data_ptr() for value in (sent, delta, *state.values())}
        for value in (w, *new.values()):
            expect(value.untyped_storage().data_ptr() not in addresses, server, "a step must return new tensors")
        expect(identical(server.step(sent, delta, state), (w, new)), server, "a step must be repeated bitwise")
        has_form_of_model = w.shape == sent.shape and w.dtype == dtype
        expect(has_form_of_model, server, f"a step must keep the model's shape and type {dtype}")
        expect(_kinds(new) == kinds, server, "a step must keep the names, shapes and types of the server state")
        if number == 0:
            goes_along = float((w - sent) @ delta) >= 0
            expect(goes_along, server, "the first step must not go against the update, which is added to the model")
        shifted = CommonPart(sent + 1)
        moved_from_shifted, _ = server.step(shifted, delta, state)
        is_same_step = close(w - sent, moved_from_shifted - shifted, 1e-5)
        expect(is_same_step, server, "a step must start from the model that was sent")
        sent = CommonPart(w)
        state = OptimiserState(new)


def _kinds(state: Vectors) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """The shape and the type of each vector."""
    return {name: (value.shape, value.dtype) for name, value in state.items()}


def check_aggregation(rule: Aggregation, tolerance: float = 1e-13, **settings: Any) -> None:
    """Check that an aggregation keeps the identities of all in `AGGREGATIONS` that are not private.

    - If all clients send the same update, it is the round's update, within a thousandth of its length.
    - An upload that is not finite or longer than the limit is left out: the round is that of the other uploads.
    - If no upload can be used, the round is skipped.
    - A model in float32 stays in float32.
    - What it remembers keeps its names, shapes and types.
    - It keeps the identities of `check_federation`.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(rule):
        method = {"method": settings["method"]} if "method" in settings else {}
        change = partial(_change_of_model, rule, method)
        update = torch.tensor([0.3, -0.2, 0.0], dtype=torch.float64)
        agrees = close(change([update] * 4), update, 1e-3)
        expect(agrees, rule, "an update that all clients send must be the round's update")
        usable = [update, -2 * update, update]
        change_by_usable = change(usable)
        for bad in (math.nan, math.inf, 10 * rule.limit):
            refused = torch.tensor([bad, 0.1, 0.2], dtype=torch.float64)
            is_left_out = close(change([*usable, refused]), change_by_usable, 1e-12)
            message = f"an upload that holds {bad} must be left out, and the round be that of the others"
            expect(is_left_out, rule, message)
            is_skipped = close(change([refused] * 3), torch.zeros_like(update), 1e-12)
            expect(is_skipped, rule, "a round without a usable upload must not change the model")
        parts = {"aggregation": rule} | settings
        _check_type(parts)
        check_federation(tolerance, **parts)


def _change_of_model(rule: Aggregation, settings: dict[str, Any], deltas: list[Tensor]) -> Tensor:
    """The change of the model `[D]` in a round in which the clients send these updates `[D]`."""

    def handler(request: Request) -> dict[str, Tensor]:
        return {"delta": deltas[int(request.ids[0])]}

    clients = FakeClients(handler, np.arange(1, len(deltas) + 1))
    start = [0.0] * len(deltas[0])
    parts: dict[str, Any] = {"aggregation": rule, "sampling": Uniform(len(deltas)), "device": "cpu"}
    federation = Federation(Point(start), clients, **parts | settings)
    return after(federation, 1).w


def _check_type(settings: dict[str, Any]) -> None:
    """Check that a model in float32, and all state that belongs to it, stays in float32."""
    model = copy.deepcopy(settings.get("model") or small_model()).float()
    parts: dict[str, Any] = {"data": small_data()} | settings
    parts["model"] = model
    state = after(small_federation(**parts), 2)
    in_float64 = []
    for name, tensor in state.tensors():
        if tensor.dtype == torch.float64 and "averages" not in name:  # which keep their sums in float64
            in_float64.append(name)
    expect(not in_float64, settings, f"a model in float32 must stay in float32, but {in_float64} became float64")
