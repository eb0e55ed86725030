"""The loop over local steps: a method that follows the plain gradient needs no step of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.client import LocalTraining, Optimiser, steps
from fedsash.methods import FedAvg, LocalRun, Method, Step, Upload
from fedsash.methods.base import Scalar
from fedsash.vector.arrays import Vectors
from fedsash.vector.sharing import Personal
from support.by_default import rotated
from support.worlds import ENGINES, after, federation

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped": {"local": LocalTraining(lr=0.1, batch=5, epochs=2, clip=0.1)},
    "alone": {"personal": Personal("classifier", alone=1)},
    "clipped alone": {
        "local": LocalTraining(lr=0.1, batch=5, clip=0.1),
        "personal": Personal("classifier", alone=1),
    },
}


@dataclass(frozen=True)
class PlainGradient(Method):
    """FedAvg, but it says what its direction is."""

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w)


@pytest.mark.parametrize("name, engine", rotated(SETTINGS, ["sequential", "vectorised"]))
def test_a_direction_that_is_the_gradient_is_fedavg_to_the_byte(name: str, engine: str) -> None:
    ends = [
        after(federation(method=m, engine=ENGINES[engine], **SETTINGS[name]), 2) for m in (FedAvg(), PlainGradient())
    ]
    assert torch.equal(ends[0].w, ends[1].w)
    for key, rows in ends[0].client_state.items():
        assert torch.equal(rows, ends[1].client_state[key])


def test_no_step_is_made_for_fedavg(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = steps.Step
    monkeypatch.setattr(steps, "Step", lambda **fields: made.append(1) or real(**fields))
    after(federation(method=FedAvg(), local=SETTINGS["clipped"]["local"]), 1)
    assert not made
    after(federation(method=PlainGradient()), 1)
    assert made


class Unit(Method):
    """Follows the gradient's direction alone, also where there is no sample and so no gradient."""

    def direction(self, step: Step) -> Tensor:
        g = step.grad(step.w)
        return g / g.norm(dim=1, keepdim=True)


class Shrinking(Method):
    def after_step(self, step: Step) -> None:
        step.w.mul_(0.9)


class OfPath(Method):
    """Uploads the mean distance of all models on a client's way."""

    def round_state(self, local: LocalRun) -> Vectors:
        return {"sum": torch.zeros_like(local.w)}

    def after_step(self, step: Step) -> None:
        step.round_state["sum"] += step.w - step.sent

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.round_state["sum"] / local.steps}, {}


@dataclass(frozen=True)
class UnitSteps(Optimiser):
    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Scalar, n: Scalar) -> None:
        w.sub_(lr * g / g.norm(dim=1, keepdim=True))


OF_ONES_OWN: dict[str, dict[str, Any]] = {
    "direction": {"method": Unit()},
    "model after a step": {"method": Shrinking()},
    "vector of the round": {"method": OfPath()},
    "optimiser": {"local": LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=UnitSteps())},
    "optimiser and personal part": {
        "local": LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=UnitSteps()),
        "personal": Personal("classifier", alone=1),
    },
}


@pytest.mark.parametrize("name", OF_ONES_OWN)
def test_code_of_ones_own_does_the_same_to_stacked_clients_of_unequal_steps_as_to_each_alone(name: str) -> None:
    one, stacked = (after(federation(engine=ENGINES[e], **OF_ONES_OWN[name]), 2) for e in ("sequential", "vectorised"))
    torch.testing.assert_close(stacked.w, one.w, rtol=0, atol=1e-12)
