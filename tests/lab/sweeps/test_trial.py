"""Whether runs are trained jointly: measured, and only if both ways give the same numbers."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from fedsash.averages import Window
from fedsash.executors.joint import Joint, Shape
from fedsash.federation import Federation
from fedsash.lab.sweeps.trial import Choice, Trial, faster
from fedsash.methods import FedAvg, Scaffold, Step
from fedsash.sampling import FixedClients
from fedsash.servers import FedAdam
from support.joint import differing, opened
from support.worlds import identical


def trial_of(worlds: list[Federation]) -> Trial:
    return Trial(worlds, [world.start() for world in worlds])


def test_runs_of_a_small_model_are_trained_together_and_a_line_says_so() -> None:
    choice = trial_of(opened(lambda run: differing(run, data=differing(0).data), 5)).choose(10, compiles=True)
    assert choice.shape is not None and choice.shape.runs == 5 and choice.shape.unrolled == 0
    assert choice.why.startswith("5 runs are trained together: ") and choice.why.endswith(" as one after another")


def test_what_does_not_pay_is_not_done() -> None:
    shape = Shape(runs=3, clients=2, samples=5)
    assert faster(shape, 1.0, 1.01) == Choice(
        None, "3 runs are trained one after another: together they would be 0.99 times as fast"
    )
    assert faster(shape, 2.0, 1.0) == Choice(
        shape, "3 runs are trained together: 2.0 times as fast as one after another"
    )


def test_the_state_of_the_runs_does_not_change() -> None:
    parts: dict[str, Any] = {"method": Scaffold(), "server": FedAdam(0.01), "averages": {"w": Window(2)}}
    worlds = opened(lambda run: differing(run, **parts))
    states = [world.start() for world in worlds]
    before = deepcopy(states)
    Trial(worlds, states).choose(10, compiles=False)
    assert all(map(identical, before, states))


@pytest.mark.parametrize("error", [1e-3, math.nan])
def test_steps_with_other_numbers_are_not_joined(error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    take = Joint.take

    def wrong(self: Joint, begun: Any) -> None:
        take(self, begun)
        begun[1].inputs.w.add_(error)

    monkeypatch.setattr(Joint, "take", wrong)
    choice = trial_of(opened(differing)).choose(10, compiles=False)
    assert choice.shape is None and "joint steps give other numbers" in choice.why


def test_joint_steps_that_can_not_be_compiled_stay_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def broken(*given: Any) -> None:
        tried.append(given)
        raise RuntimeError("a defect of the compiler")

    monkeypatch.setattr("fedsash.executors.compiled.compiled", broken)
    data = differing(0).data
    choice = trial_of(opened(lambda run: differing(run, data=data), 5)).choose(10**9, compiles=True)
    assert tried and choice.shape is not None and choice.shape.unrolled == 0


@dataclass(frozen=True)
class Deciding(FedAvg):
    """Whether its steps are long depends on a number, which vmap does not know."""

    strength: float = 0.0

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) * (2 if self.strength > 1 else 1)


def test_numbers_that_vmap_can_not_follow_make_the_joint_steps_fail() -> None:
    worlds = opened(lambda run: differing(run, method=Deciding(strength=float(run))))
    choice = trial_of(worlds).choose(10, compiles=False)
    assert choice.shape is None and choice.failed


def test_a_run_without_clients_in_the_next_round_can_not_be_measured() -> None:
    def make(run: int) -> Federation:
        return differing(run, sampling=FixedClients(((), (1, 2)) if run == 1 else ((1, 2),)))

    choice = trial_of(opened(make)).choose(10, compiles=False)
    assert choice.shape is None and "no client takes part" in choice.why
