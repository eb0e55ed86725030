"""What a method's own class says of itself: which hooks it overrides, and a probe that sends nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.client import SGD, Adam, LocalTraining
from fedsash.client.trainer import Trainer
from fedsash.methods import (
    METHODS,
    FedAvg,
    FedMoSWA,
    FedSAM,
    LocalRun,
    Method,
    Mime,
    MimeLite,
    RoundMean,
    Scaffold,
    Step,
    Upload,
)
from fedsash.settings.errors import SettingError
from fedsash.vector.arrays import Vectors
from fedsash.vector.layout import Layout
from support.by_default import rotated, some
from support.worlds import ENGINES, after, federation


@dataclass(frozen=True)
class Silent(FedAvg):
    """It asks its clients before the training, and none of them says anything."""

    def probe(self, local: LocalRun) -> Vectors:
        return {}


@dataclass(frozen=True)
class Alone(Mime):
    """Mime whose probe insists on what it has received."""

    def probe(self, local: LocalRun) -> Vectors:
        assert not local.server_state
        return super().probe(local)


@dataclass(frozen=True)
class Nearer(FedSAM):
    """A method of a user's own, which changes nothing more than the one it extends."""


@dataclass(frozen=True)
class Counting(FedAvg):
    """It counts the steps of each client, from one zero for all of them."""

    def round_state(self, local: LocalRun) -> Vectors:
        return {"taken": torch.zeros(1, 1).to(local.w).expand(len(local.w), -1)}

    def after_step(self, step: Step) -> None:
        step.round_state["taken"] += (step.weights.sum(1, keepdim=True) > 0).to(step.w)

    def upload(self, local: LocalRun) -> Upload:
        assert torch.equal(local.round_state["taken"], local.steps)
        return super().upload(local)


@pytest.mark.parametrize("engine", rotated(["vectorised", "sequential", "workers"], turns=2))
def test_steps_can_change_a_round_state_that_began_as_one_row_for_all(engine: str) -> None:
    counted, plain = (after(federation(engine=ENGINES[engine], method=method), 2) for method in (Counting(), FedAvg()))
    assert torch.equal(counted.w, plain.w)


def test_a_class_knows_the_hooks_that_it_overrides() -> None:
    assert Method.overridden == FedAvg.overridden == frozenset()
    assert Silent.overridden == {"probe"} and "probe" in Mime.overridden
    assert Nearer.overridden == FedSAM.overridden and "direction" in FedSAM.overridden


@pytest.mark.parametrize("name", METHODS)
def test_only_mime_probes(name: str) -> None:
    assert ("probe" in METHODS[name].overridden) == (name == "mime")


OTHERWISE = (Scaffold(option="I"), Scaffold(option="raw"), FedMoSWA(option="I"), Mime(beta=0), MimeLite(beta=0))
"""Methods with other settings, on which their gradients over all samples depend."""


@pytest.mark.parametrize(
    "method",
    some([*(make() for make in METHODS.values()), *OTHERWISE], FedAvg(), Mime(), *OTHERWISE),
    ids=repr,
)
def test_a_method_says_whether_it_takes_gradients_over_all_samples(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, real = [], Trainer._full_gradient
    monkeypatch.setattr(Trainer, "_full_gradient", lambda *given: taken.append(True) or real(*given))
    after(federation(method=method), 1)
    assert bool(taken) == method.full_gradients


@pytest.mark.parametrize("engine", rotated(["vectorised", "sequential", "workers"], turns=1))
def test_a_probe_receives_the_model_alone(engine: str) -> None:
    settings = {"engine": ENGINES[engine], "averages": {}}
    alone, plain = (after(federation(method=method, **settings), 3).w for method in (Alone(), Mime()))
    assert torch.equal(alone, plain)


@pytest.mark.parametrize("engine", rotated(["workers", "sequential", "vectorised"], turns=1))
def test_a_probe_that_sends_nothing_is_a_pass_that_changes_nothing(engine: str) -> None:
    settings = {"engine": ENGINES[engine], "averages": {}}
    silent, plain = (after(federation(method=method, **settings), 3).w for method in (Silent(), FedAvg()))
    assert torch.equal(silent, plain)


class Forgetful(FedAvg):
    """Gives no client state back."""

    def client_state(self, w: Tensor) -> Vectors:
        return {"last": torch.zeros_like(w)}


class WithoutDelta(FedAvg):
    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"update": local.delta}, {}


@pytest.mark.parametrize("engine", some(ENGINES, "vectorised"))
def test_an_upload_that_is_not_complete_is_refused_with_its_name(engine: str) -> None:
    with pytest.raises(SettingError, match=r"Forgetful\.upload = \[\]: must also return the new client state 'last'"):
        after(federation(method=Forgetful(), engine=ENGINES[engine]), 1)
    with pytest.raises(SettingError, match=r"WithoutDelta\.upload = \['update'\]: must return a vector called 'delta'"):
        after(federation(method=WithoutDelta(), engine=ENGINES[engine]), 1)


@dataclass(frozen=True)
class FromStart(FedAvg):
    """FedProx, which remembers the model itself as the start of a round, or a copy of it."""

    copies: bool = field(kw_only=True)

    def round_state(self, local: LocalRun) -> Vectors:
        start = local.w
        if self.copies:
            start = local.w.clone()
        return {"start": start}

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) + 0.5 * (step.w - step.round_state["start"])


@pytest.mark.parametrize("part", [{}, {"personal": "3"}], ids=["whole", "with a personal part"])
@pytest.mark.parametrize("engine", some(ENGINES, "sequential", "vectorised"))
def test_a_vector_of_the_round_stays_as_it_was_made_while_the_model_moves(engine: str, part: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"engine": ENGINES[engine]} | part
    methods = (FromStart(copies=False), FromStart(copies=True))
    lent, copied = (after(federation(method=method, **settings), 2).w for method in methods)
    assert torch.equal(lent, copied)


class Summed(FedAvg):
    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta.sum(1)}, {}


class Column(FedAvg):
    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w).mean(1, keepdim=True)


class Scalar(FedAvg):
    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update.mean(), received.server_state


class Undeclared(FedAvg):
    """Momentum whose state is not in `server_state()`: each round would begin without it, as FedAvg."""

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        m = received.update + 0.9 * received.server_state.get("m", torch.zeros_like(received.update))
        return m, {"m": m}


class Lost(FedAvg):
    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"m": torch.zeros_like(w)}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {}


class Retyped(FedAvg):
    """Counts in another type than it began with, so that no saved state could be loaded."""

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"n": torch.tensor(0)}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"n": received.server_state["n"] + 0.5}


class Reshaped(FedAvg):
    def client_state(self, w: Tensor) -> Vectors:
        return {"g": torch.zeros_like(w)}

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta}, {"g": local.delta.sum(1)}


REFUSED = [
    (Summed(), r"Summed\.upload: delta: shape = \[\d+\]: must be \[\d+, \d+\]"),
    (Column(), r"Column\.direction: shape = \[\d+, 1\]: must be \[\d+, \d+\]"),
    (Scalar(), r"Scalar\.server_update: the update: shape = \[\]: must be \[\d+\]"),
    (
        Undeclared(),
        r"Undeclared\.server_update = \['m'\]: 'm' must begin in server_state\(\)",
    ),
    (Lost(), r"Lost\.server_update = \[\]: must also return the new server state 'm'"),
    (Retyped(), r"Retyped\.server_update: n: type = 'torch\.float32': must be torch\.int64"),
    (Reshaped(), r"Reshaped\.upload: g: shape = \[\d+\]: must be \[\d+, \d+\]"),
]


@pytest.mark.parametrize("engine, number", rotated(ENGINES, range(len(REFUSED)), turns=3))
def test_what_pytorch_would_spread_or_a_round_would_lose_is_refused(engine: str, number: int) -> None:
    method, message = REFUSED[number]
    with pytest.raises(SettingError, match=message):
        after(federation(method=method, engine=ENGINES[engine]), 1)


class Dividing(FedAvg):
    """Takes its update for a mean gradient, and does not say so."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, "g": local.direction}, {}


NO_MEAN_DIRECTION = {
    "optimiser": LocalTraining(optimiser=Adam()),
    "keep_moments": LocalTraining(optimiser=SGD(momentum=0.5), keep_moments=True),
}


@pytest.mark.parametrize("engine, field", rotated(ENGINES, NO_MEAN_DIRECTION))
def test_a_mean_direction_is_refused_where_an_update_is_none(engine: str, field: str) -> None:
    """The library's own methods say so before the first round."""
    local = NO_MEAN_DIRECTION[field]
    with pytest.raises(SettingError, match=rf"LocalTraining\.{field} = .*the method takes a client's update, divided"):
        after(federation(method=Dividing(), local=local, engine=ENGINES[engine]), 1)
