"""A state that a round has used up is refused by name; a copy of it is not, and gives the same next round."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.averages import EMA, Window
from fedsash.client.store import ServerCopy
from fedsash.evaluation import Evaluation
from fedsash.lab.studies.client_models import client_models
from fedsash.methods import Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.network import Asynchronous, FedBuff, Network
from fedsash.runs import checkpoints
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.settings.errors import RunError
from support.by_default import rotated, some
from support.worlds import SIZES, after, federation, identical

WORLDS: dict[str, dict[str, Any]] = {
    "averages": {"averages": {"ema": EMA(0.5)}},
    "clients": {"method": Scaffold(), "averages": {"w": Window(2)}, "broadcast": Broadcast("w", 1)},
    "on the disk": {"averages": {"w": Window(2, storage="disk")}},
}


USED_UP = r"^the state after 2 rounds was used up by the round after it.*deepcopy"

USES: dict[str, Callable[[Federation, State, Path], object]] = {
    "a round": lambda world, state, folder: world.round(state),
    "a request": lambda world, state, folder: world.ask(state),
    "the models": lambda world, state, folder: world.models(state),
    "an evaluation": lambda world, state, folder: world.evaluate(state),
    "a broadcast's decision": lambda world, state, folder: world.learn(state, []),
    "the state to save": lambda world, state, folder: world.saved(state),
    "a saved state": lambda world, state, folder: checkpoints.save(state, folder),
    "the clients' models": lambda world, state, folder: client_models(world, state),
}


@pytest.mark.parametrize("name, use", rotated(WORLDS, USES))
def test_a_state_that_a_round_has_used_up_is_refused(name: str, use: str, tmp_path: Path) -> None:
    world = federation(**WORLDS[name])
    state = after(world, 2)
    further, _ = world.round(state)
    with pytest.raises(RunError, match=USED_UP):
        USES[use](world, state, tmp_path)
    USES[use](world, further, tmp_path)


def test_a_model_is_not_judged_with_the_parts_of_a_state_that_is_used_up() -> None:
    world = federation(personal=["3"], evaluation=Evaluation(clients=True))
    state = after(world, 2)
    further, _ = world.round(state)
    with pytest.raises(RunError, match=USED_UP):
        world.judge(state.w, 2, "model", state)
    assert world.judge(state.w, 2, "model", further)


def test_a_state_that_a_step_on_a_network_has_used_up_is_refused() -> None:
    driver = Asynchronous(federation(sampling=Uniform()), Network(), FedBuff(2))
    with driver.federation as world:
        state = world.start()
        for _ in range(2):
            state, _ = driver.round(state)
        further, _ = driver.round(state)
        for use in (driver.round, driver.saved):
            with pytest.raises(RunError, match=USED_UP):
                use(state)
        assert driver.round(further)[0].round == 4


def test_a_loaded_state_is_not_put_into_a_start_that_is_used_up(tmp_path: Path) -> None:
    world = federation()
    place = checkpoints.save(after(world, 2), tmp_path)
    start = world.start()
    world.round(start)
    with pytest.raises(RunError, match=r"^the state after 0 rounds was used up"):
        checkpoints.load(place, start)


def test_a_state_whose_clients_are_gathered_is_as_used_up_as_before() -> None:
    world = federation(method=Scaffold())
    state = after(world, 2)
    handles = np.array([ServerCopy(partial(state.clients.of_client, client)) for client in range(len(SIZES))])
    away = replace(state, clients=replace(state.clients, handles=handles))
    assert identical(away, state) and not away.gathered().spent
    away.spent = True
    assert away.gathered().spent


@pytest.mark.parametrize("name", some(WORLDS, "clients"))
def test_two_rounds_from_copies_of_one_state_are_the_same(name: str) -> None:
    world = federation(**WORLDS[name])
    state = after(world, 2)
    kept = copy.deepcopy(state)
    ends = [world.models(world.round(copy.deepcopy(state))[0]) for _ in range(2)] + [world.models(world.round(kept)[0])]
    for end in ends[1:]:
        assert all(torch.equal(end[name], model) for name, model in ends[0].items())
    assert torch.equal(world.models(state)["model"], state.w)
