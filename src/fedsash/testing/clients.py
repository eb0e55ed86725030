"""The contract of clients, on this machine or on others."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import nn

from ..client.messages import Executor
from ..engines.clients import Clients
from ..methods.sampling import Uniform
from ..server.federation import Federation
from .equality import identical
from .executors import first_request
from .expect import expect, in_one_sentence


def check_clients(clients: Clients, model: nn.Module, **settings: Any) -> None:
    """Check that clients keep the contract of `Clients`, in a federation that trains `model` on the CPU.

    - `sizes` are int64 `[N]` and positive, and do not change. They are the sizes of `data`, if there are any.
    - The fingerprint holds texts by name, and is the same each time.
    - `settled` returns clients of the same sizes, with any description of an executor.
    - Their executor answers every place of a request exactly once.
    - A run can be repeated bitwise, also after the server is set back by two rounds. If clients keep their own state,
      they keep it by version, and no request contains any.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the part of the contract.
    """
    with in_one_sentence(type(clients).__name__):
        name = type(clients).__name__
        sizes = clients.sizes
        expect(
            sizes.dtype == np.int64 and sizes.ndim == 1 and bool((sizes > 0).all()),
            name,
            "sizes must be one int64 array of positive numbers",
        )
        expect(
            clients.data is None or clients.data.sizes.tolist() == sizes.tolist(), name, "sizes must be those of data"
        )
        defaults: dict[str, Any] = {"sampling": Uniform(len(sizes)), "device": "cpu"}
        world = Federation(model, clients, **defaults | settings)
        with world:
            expect(isinstance(world.executor, Executor), name, "open must return an Executor")
            settled = clients.settled(world.described()).sizes.tolist()
            expect(settled == sizes.tolist(), name, "settled must return clients of the same sizes")
            request = first_request(world)
            training = world.training()
            found = clients.fingerprint(training)
            texts = all(isinstance(text, str) for text in (*found, *found.values()))
            same = clients.fingerprint(training) == found
            expect(texts and same, name, "the fingerprint must hold the same texts each time")
            places = [place for answer in world.executor.work(request) for place in answer.places.tolist()]
            expect(sorted(places) == [*range(len(request.ids))], name, "every place must be answered exactly once")
            some = request.only(np.arange(0, len(request.ids), 2))
            places = [place for answer in world.executor.work(some) for place in answer.places.tolist()]
            right = "every place must be answered exactly once, and only those of clients that are asked"
            expect(sorted(places) == [*range(len(some.ids))], name, right)
            expect(
                not clients.remember or not world.start().client_state,
                name,
                "clients that keep their own state must be sent none",
            )
            _set_back(world, name)


def _set_back(world: Federation, name: str) -> None:
    state = world.start()
    for _ in range(2):
        state, _ = world.round(state)
    saved = copy.deepcopy(state)
    for _ in range(2):
        state, _ = world.round(state)
    for _ in range(2):
        saved, _ = world.round(saved)
    expect(identical(saved, state), name, "after a server is set back, the run must be repeated bitwise")
    again = world.start()
    for _ in range(4):
        again, _ = world.round(again)
    expect(identical(again, state), name, "a run must be repeated bitwise")
