"""A state that a round has used up is refused by name; a copy of it is not, and gives the same next round."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from fedsash.averages import EMA, Window
from fedsash.broadcast import Broadcast
from fedsash.methods import Scaffold
from fedsash.settings.errors import RunError
from support.worlds import after, federation

WORLDS: dict[str, dict[str, Any]] = {
    "averages": {"averages": {"ema": EMA(0.5)}},
    "clients": {"method": Scaffold(), "averages": {"w": Window(2)}, "broadcast": Broadcast("w", 1)},
    "on the disk": {"averages": {"w": Window(2, storage="disk")}},
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_state_that_a_round_has_used_up_is_refused(name: str) -> None:
    world = federation(**WORLDS[name])
    state = after(world, 2)
    further, _ = world.round(state)
    for use in (world.round, world.models, world.evaluate):
        with pytest.raises(RunError, match=r"^the state after 2 rounds was used up by the round after it.*deepcopy"):
            use(state)
    assert set(world.models(further)) == {"model", *world.averages}


@pytest.mark.parametrize("name", WORLDS)
def test_two_rounds_from_copies_of_one_state_are_the_same(name: str) -> None:
    world = federation(**WORLDS[name])
    state = after(world, 2)
    kept = copy.deepcopy(state)
    ends = [world.models(world.round(copy.deepcopy(state))[0]) for _ in range(2)] + [world.models(world.round(kept)[0])]
    for end in ends[1:]:
        assert all(torch.equal(end[name], model) for name, model in ends[0].items())
    assert torch.equal(world.models(state)["model"], state.w)
