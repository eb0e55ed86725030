"""Runs whose local steps are taken at once: each is the run that it would be alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash.averages import Window
from fedsash.basics.arrays import Vectors
from fedsash.basics.sharing import Personal
from fedsash.broadcast import Broadcast
from fedsash.executors.joint import numbers_of
from fedsash.federation import Federation
from fedsash.joint_rounds import JointRounds, kind, trainer_of
from fedsash.local import OPTIMISERS, StepInputs
from fedsash.local.optimisers import SGD, Adam
from fedsash.methods import (
    EWC,
    FedACG,
    FedAvg,
    FedCM,
    FedDyn,
    FedFA,
    FedProx,
    FedSAM,
    LocalRun,
    Method,
    Mime,
    MimeLite,
    Step,
    Upload,
)
from fedsash.sampling import Uniform
from fedsash.servers import FedAdam, ServerSGD
from fedsash.state import Made
from fedsash.testing import close
from support.by_default import rotated
from support.choices import METHODS, SAMPLINGS, one_of_each
from support.joint import ALL_AT_ONCE, differing, jointly, opened, shape_of, state_of
from support.worlds import SEQUENTIAL, SIZES, after, data, mlp


@pytest.fixture(autouse=True)
def _no_joint_steps_may_fail(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Otherwise each run would take its steps alone, and be right without a proof."""
    yield
    assert "joint steps failed" not in caplog.text


def check(make: Callable[[int], Federation], runs: int = 3, rounds: int = 3, compiled: bool = False) -> None:
    for run, state in enumerate(jointly(make, rounds, runs, compiled)):
        same = close(state, after(make(run), rounds), 1e-13)
        assert same, f"run {run}: {same}"


NUMBERS = pytest.mark.parametrize("runs, rounds", [(2, 2), pytest.param(3, 3, marks=pytest.mark.full)])
"""How many runs for how many rounds. From the second round on, there is something to remember."""


@NUMBERS
@pytest.mark.parametrize("name", one_of_each(METHODS))
def test_every_method_is_what_it_is_alone(name: str, runs: int, rounds: int) -> None:
    """The runs differ in seed, partition, learning rate and initial model, and take other numbers of steps."""
    rounds = 3 if name == "fedfa" else rounds  # only then are all its terms there
    check(lambda run: differing(run, method=METHODS[name]), runs, rounds)


@NUMBERS
@pytest.mark.parametrize("name, kept", rotated(OPTIMISERS, [False, True]))
def test_every_optimiser_is_what_it_is_alone(name: str, kept: bool, runs: int, rounds: int) -> None:
    local = {"optimiser": OPTIMISERS[name](), "keep_moments": kept}
    check(lambda run: differing(run, local, sampling=Uniform(4)), runs, rounds)


@pytest.mark.parametrize(
    "method",
    [
        lambda run: FedProx(0.1 * run),
        lambda run: FedACG(0.2 * run, 0.1 * (run + 1)),
        lambda run: FedDyn(0.1 * (run + 1)),
        pytest.param(lambda run: FedCM(0.2 * (run + 1)), marks=pytest.mark.full),
        lambda run: FedSAM(0.1 * run),
        pytest.param(lambda run: EWC(0.5 * run), marks=pytest.mark.full),
        lambda run: Mime(0.2 * (run + 1)),
        pytest.param(lambda run: Mime(0.2 * (run + 1), damped=False), marks=pytest.mark.full),
        pytest.param(lambda run: MimeLite(0.2 * (run + 1)), marks=pytest.mark.full),
    ],
    ids=["fedprox", "fedacg", "feddyn", "fedcm", "fedsam", "ewc", "mime", "mime, undamped", "mimelite"],
)
@NUMBERS
def test_numbers_of_a_method_may_differ(method: Callable[[int], Method], runs: int, rounds: int) -> None:
    def make(run: int) -> Federation:
        return differing(run, method=method(run))

    assert shape_of(opened(make, runs)).varied
    check(make, runs, rounds)


def normed(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()


PAIRS = (7, 12, 4, 20, 9, 2)
"""Clients that have no batch of one sample."""
AVERAGES = {"w": Window(2)}
KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "dropout": lambda run: {"model": mlp(dropout=0.3, seed=run)},
    "statistics averaged": lambda run: {"model": normed(run), "buffers": "average", "data": data(PAIRS)},
    "statistics kept": lambda run: {"model": normed(run), "buffers": "local_norm", "data": data(PAIRS[::-1])},
    "personal": lambda run: {"personal": Personal("classifier")},
    "personal, first alone": lambda run: {"personal": Personal("classifier", alone=1)},
    "an average is sent": lambda run: {"averages": AVERAGES, "broadcast": Broadcast("w", run + 1)},
    "servers": lambda run: {"server": (ServerSGD(lr=0.5, momentum=0.9), FedAdam(), ServerSGD())[run]},
    "clients missing": lambda run: {"sampling": SAMPLINGS["dropout"]},
    "few clients": lambda run: {"sampling": Uniform(1 + 2 * run)},
    "clipped": lambda run: {"local": {"clip": 0.1, "optimiser": Adam()}},
    "whole batches": lambda run: {"local": {"batch": "full", "epochs": 1 + run}},
}


OF_ONE_STEP = ("servers", "clients missing", "few clients", "personal")
"""Kinds of runs whose local steps are those of another kind, too."""


@NUMBERS
@pytest.mark.parametrize(
    "name", [pytest.param(kind, marks=pytest.mark.full if kind in OF_ONE_STEP else ()) for kind in KINDS]
)
def test_every_kind_of_run_is_what_it_is_alone(name: str, runs: int, rounds: int) -> None:
    rounds = 3 if name == "an average is sent" else rounds  # the last run sends it from the third round on
    check(lambda run: differing(run, **KINDS[name](run)), runs, rounds)


@pytest.mark.parametrize("at_once", [2, *(pytest.param(parts, marks=pytest.mark.full) for parts in (1, 3, 4))])
def test_runs_may_take_their_steps_in_parts(at_once: int) -> None:
    """The last part may have fewer runs, and the parts take other numbers of steps."""

    def make(run: int) -> Federation:
        return differing(run, {"epochs": 1 + run % 3}, method=FedProx(0.1 * run))

    for run, state in enumerate(jointly(make, rounds=2, runs=5, at_once=at_once)):
        assert close(state, after(make(run), 2), 1e-13)


def test_a_part_whose_runs_have_ended_takes_no_steps() -> None:
    def make(run: int) -> Federation:
        return differing(run)

    worlds = opened(make, 4)
    joint = JointRounds(worlds, replace(shape_of(worlds), at_once=2), range(4))
    left = {2: worlds[2].start(), 3: worlds[3].start()}
    taken: list[int] = []
    steps = joint._joint._steps

    def counted(inputs: StepInputs) -> None:
        taken.append(len(inputs.w))
        steps(inputs)

    joint._joint._steps = counted
    made = dict(joint.made(left))
    assert taken == [2]
    for run in left:
        assert close(state_of(made[run]), after(make(run), 1), 1e-13)


def test_compiled_steps_take_as_many_runs_at_once_as_caches_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = opened(differing, 5)
    trainers, whole = [trainer_of(world) for world in worlds], shape_of(worlds)
    assert whole.compiled(trainers).at_once == 5
    a_run = len(SIZES) * worlds[0].layout.size * 8
    for fit, at_once in ((1, 1), (2, 2), (3, 3), (4, 3)):  # parts are as equal as possible
        monkeypatch.setattr("fedsash.executors.joint.CACHED_BYTES", fit * a_run)
        assert whole.compiled(trainers).at_once == at_once


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["fedavg", "scaffold-II", "fedfa", "fedsam", "mime"])
def test_compiled_joint_steps_are_what_each_run_takes_alone(method: str) -> None:
    check(lambda run: differing(run, method=METHODS[method]), compiled=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled_joint_steps_have_numbers_of_their_own() -> None:
    check(lambda run: differing(run, {"optimiser": Adam()}, method=FedProx(0.1 * run)), compiled=True)


def test_runs_may_have_largest_batches_of_other_sizes() -> None:
    """A whole batch is a client's samples, so the partition decides; the narrower ones are padded."""
    even = [len(part) for part in np.array_split(np.arange(sum(SIZES)), len(SIZES))]
    sizes = (SIZES, tuple(even), (*SIZES[1:], SIZES[0]))
    assert max(even) < max(SIZES)
    check(lambda run: differing(run, {"batch": "full"}, data=data(sizes[run])))


def test_a_run_that_diverges_harms_no_other() -> None:
    def make(run: int) -> Federation:
        rate, decay = 1e9 if run == 1 else 1e-10, SGD(weight_decay=1e9)
        return differing(run, {"lr": rate, "optimiser": decay, "epochs": 20})

    worlds = opened(make, 2)
    joint = JointRounds(worlds, shape_of(worlds), range(2))
    made = dict(joint.made(dict(enumerate(world.start() for world in worlds))))
    assert close(state_of(made[0]), after(make(0), 1), 1e-13)
    refused = [one.report.refused for one in made.values() if isinstance(one, Made)]
    assert refused[1] and not refused[0]


@dataclass(frozen=True)
class Fails(Method):
    """It fails from the second round on if `by` is above 1: after the steps, or already in a step."""

    by: float = 0.0
    early: bool = False

    def round_state(self, local: LocalRun) -> Vectors:
        return {"round": torch.full_like(local.steps, local.round)}

    def direction(self, step: Step) -> torch.Tensor:
        if self.early and self.by > 1 and bool(step.round_state["round"].any()):
            raise ZeroDivisionError("a step can't be taken")
        return super().direction(step)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        if self.by > 1 and local.round > 0:
            raise ZeroDivisionError("no upload")
        return super().upload(local)


@pytest.mark.parametrize("early", [False, True])
def test_a_run_that_fails_harms_no_other(early: bool, caplog: pytest.LogCaptureFixture) -> None:
    """In a step it makes the joint steps fail; then each run takes its steps alone."""

    def make(run: int) -> Federation:
        return differing(run, method=Fails(float(2 * run), early))

    worlds = opened(make, 2)
    joint = JointRounds(worlds, shape_of(worlds), range(2))
    made = dict(joint.made(dict(enumerate(world.start() for world in worlds))))
    made = dict(joint.made({run: state_of(one) for run, one in made.items()}))
    assert isinstance(made[1], ZeroDivisionError)
    assert close(state_of(made[0]), after(make(0), 2), 1e-13)
    assert ("joint steps failed" in caplog.text) == early
    caplog.clear()


def test_a_run_that_has_ended_leaves_its_place_to_another() -> None:
    worlds = opened(differing)
    joint = JointRounds(worlds, shape_of(worlds), range(3))
    states = dict(enumerate(world.start() for world in worlds))
    states = {run: state_of(made) for run, made in joint.made(states)}
    del states[0]
    states = {run: state_of(made) for run, made in joint.made(states)}
    for run, state in states.items():
        assert close(state, after(differing(run), 2), 1e-13)


def test_runs_are_of_one_kind_only_if_their_steps_differ_in_inputs_and_numbers_of_the_method() -> None:
    def kind_of(run: int = 0, **settings: Any) -> str:
        with differing(run, **settings) as world:
            world.prepare()
            return kind(world)

    frozen = mlp()
    frozen.register_buffer("other", torch.ones(1, dtype=torch.float64))
    usual = kind_of()
    assert usual == kind_of(1) == kind_of(2, server=FedAdam(), sampling=Uniform(2), averages=AVERAGES)
    assert kind_of(method=FedProx(0.1)) == kind_of(method=FedProx(0.2)) != usual
    others: list[dict[str, Any]] = [
        {"local": {"clip": 1.0}},
        {"local": {"optimiser": SGD(momentum=0.5)}},
        {"model": frozen},
        {"loss": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)},
        {"engine": replace(ALL_AT_ONCE, memory_format="channels_last")},
    ]
    assert usual not in [kind_of(**other) for other in others]
    assert kind_of(engine=SEQUENTIAL) == ""
    assert numbers_of(FedFA()) == [] and numbers_of(FedAvg()) == []


def test_runs_whose_layers_are_in_other_modes_are_not_joined() -> None:
    """A dropout in eval mode drops nothing, so such a run takes other steps, and can't go on from another's state."""
    models = [mlp(dropout=0.5, seed=0), mlp(dropout=0.5, seed=0)]
    models[1][2].eval()
    worlds = [differing(0, model=model) for model in models]
    for world in worlds:
        world.prepare()
    assert isinstance(models[1][2], nn.Dropout) and kind(worlds[0]) and kind(worlds[0]) != kind(worlds[1])
    assert worlds[0].fingerprint["model"] != worlds[1].fingerprint["model"]
