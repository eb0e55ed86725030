"""An average of one's own that asks for models which are not kept for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import fedsash as fs
from fedsash.averages import Average
from fedsash.averages.base import Retention
from fedsash.testing.averages import follow, trajectory
from fedsash.testing.worlds import after, small_federation
from fedsash.vector.arrays import Vectors
from fedsash.vector.pieces import Pieces

LINE = r"asks for the model of round 1, .*: retention\(\) must give .*, and needs\(state\) the rounds of those it has"


@dataclass(frozen=True)
class Last(Average):
    """The mean of the last two models; it forgets to say which ones it needs."""

    def init(self, w: Tensor) -> Vectors:
        return {"seen": torch.zeros((), dtype=torch.int64)}

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return (past[int(state["seen"])] + w) / 2


@dataclass(frozen=True)
class Room(Last):
    """The same, with room for past models."""

    def retention(self) -> Retention:
        return Retention(2)


@dataclass(frozen=True)
class Taking(Last):
    """The same, which asks for the model before when it takes one."""

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        past[round]


@pytest.mark.parametrize("average", [Last(), Room(), Taking()])
def test_the_error_says_what_retention_and_needs_must_give(average: Average) -> None:
    models = trajectory(1)
    with pytest.raises(KeyError, match=LINE):
        follow(average, models).value(models[-1])


def test_so_it_is_in_a_federation_and_in_a_tracker() -> None:
    world = small_federation(averages={"it": Room()})
    with pytest.raises(KeyError, match=LINE):
        world.models(after(world, 1))
    module = nn.Linear(2, 1)
    tracker = fs.Tracker(Room(), module)
    tracker.update()
    with pytest.raises(KeyError, match=LINE):
        tracker.copy_to(nn.Linear(2, 1))


def test_a_round_that_is_not_kept_is_not_in_the_past() -> None:
    past = follow(Room(), trajectory(2)).held
    assert 1 not in past and past.get(1) is None
