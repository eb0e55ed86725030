"""Small federations on the nodes of a grid in this process, and the same ones in a simulation."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedsash.data.federated import FederatedData
from fedsash.flower import FlowerClients, Waiting, client_app
from fedsash.flower.nodes import wire
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.testing.grid import InProcessGrid
from support.worlds import SEQUENTIAL, data, federation, mlp

WAITING = Waiting(deadline=0.01, roll_call=0.01, poll=0.001)
"""Nodes in this process answer at once."""

logging.getLogger("flwr").setLevel(logging.WARNING)


def here(**settings: Any) -> Federation:
    """The small federation in a simulation."""
    return federation(**{"sampling": Uniform(4)} | settings)


def grid(
    folder: Path,
    samples: FederatedData | None = None,
    model: nn.Module | None = None,
    mods: Sequence[Any] = (),
    **more: Any,
) -> InProcessGrid:
    """A grid with a node for each client; their numbers are not in the order of the nodes' ids."""
    own = data() if samples is None else samples
    app = client_app(own, model=model or mlp(), engine=SEQUENTIAL, folder=folder, mods=mods)
    count = len(own.clients)
    return InProcessGrid(app, {100 - 7 * client: {"partition-id": client} for client in range(count)}, **more)


def there(nodes: InProcessGrid, world: Federation, remember: bool = True, **waiting: Any) -> Federation:
    """The same federation as `world`, with its clients on nodes."""
    clients = FlowerClients(
        nodes,
        world.clients.problem,
        len(world.sizes),
        evaluation=world.evaluation,
        seed=world.seed,
        waiting=replace(WAITING, **waiting),
        remember=remember,
    )
    return replace(world, data=clients)


def both(folder: Path, rounds: int, remember: bool = True, **settings: Any) -> tuple[State, State]:
    """The states after so many rounds on nodes and in a simulation."""
    simulated = here(**settings)
    nodes = grid(folder, settings.get("data"), settings.get("model"))
    with there(nodes, simulated, remember) as world, simulated:
        state, expected = world.start(), simulated.start()
        for _ in range(rounds):
            state, report = world.round(state)
            assert not report.missing, report.missing
            expected, _ = simulated.round(expected)
    return state, expected


def assert_same(state: State, expected: State) -> None:
    """Bitwise the same model, server state, averages and versions, and client state if the server keeps it."""
    kept = {name for name, _ in state.tensors()}
    for name, value in expected.tensors():
        if name in kept or not name.startswith("client_state"):
            assert torch.equal(dict(state.tensors())[name], value), name
    assert [name for name, _ in state.models()] == [name for name, _ in expected.models()]
    for (name, model), (_, other) in zip(state.models(), expected.models(), strict=True):
        assert torch.equal(model["w"], other["w"]), name


def lying(number: int, **said: Any) -> Any:
    """A mod by which the node of a client says something else in the roll call."""
    from flwr.app import ConfigRecord

    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ROLL_CALL and context.node_config["partition-id"] == number:
            table = json.loads(reply.content[wire.REPLY]["numbers"]) | said
            reply.content[wire.REPLY] = ConfigRecord({"numbers": json.dumps(table)})
        return reply

    return mod
