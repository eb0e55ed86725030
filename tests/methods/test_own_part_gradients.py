"""Methods that take gradients at the received model, where a part of the model stays with the clients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from fedsash.client import LocalTraining
from fedsash.methods import FedAvg, FedCM, FedMoSWA, Method, Mime, MimeLite, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.testing import close
from fedsash.vector.sharing import Personal
from support.by_default import rotated, some
from support.norms import with_norm
from support.personal import SIZES, personal
from support.worlds import ENGINES, EVERY_ENGINE, after, data

ONE_STEP = LocalTraining(lr=0.5, batch="full", steps=1)
STEPS = LocalTraining(lr=0.5, batch="full", steps=3)
OWN: dict[str, Any] = {
    "classifier": partial(personal, "classifier"),
    "extractor": partial(personal, "extractor"),
    "alone": partial(personal, Personal("classifier", 3)),
    "local_norm": partial(with_norm, buffers="local_norm"),
}
"""Federations in which something stays with the clients."""
WITH_OPTIONS: dict[str, Any] = {"scaffold": Scaffold, "fedmoswa": partial(FedMoSWA, rho=1.0)}


TOGETHER = [own for own in OWN if own != "alone"]
"""Where the whole model trains together. A part that has trained alone is another one than the client has received."""
SPAWNED_TOO = [pytest.param("spawned", own, marks=pytest.mark.full) for own in OWN]


def of_everyone(own: str, **settings: Any) -> Federation:
    return OWN[own](**{"sampling": Uniform(len(SIZES)), "local": ONE_STEP, "averages": {}} | settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize("engine, own, name", rotated(ENGINES, TOGETHER, WITH_OPTIONS, turns=2))
def test_with_one_full_batch_step_options_one_and_two_agree(engine: str, own: str, name: str) -> None:
    """Both are the gradient that this step took, at the received model with what the client had of its own."""
    make = WITH_OPTIONS[name]
    one, two = (
        after(of_everyone(own, method=make(option=option), engine=ENGINES[engine]), 2).client_state["c"]
        for option in ("I", "II")
    )
    assert close(one, two, 1e-13) and float(one.norm()) > 0.1


@pytest.mark.parametrize("own", some(TOGETHER, "local_norm"))
def test_with_one_full_batch_step_mimelite_is_fedcm(own: str) -> None:
    lite, cm = (after(of_everyone(own, method=method), 3).w for method in (MimeLite(0.5), FedCM(0.5)))
    assert close(lite, cm, 1e-13)


@pytest.mark.parametrize("engine, own", [*rotated(ENGINES, OWN, turns=2), *SPAWNED_TOO])
def test_mime_sgd_of_one_client_is_gradient_descent(own: str, engine: str) -> None:
    """What corrects the gradient is the same twice, so nothing is left of it."""
    settings: dict[str, Any] = {"data": data((12,)), "sampling": Uniform(1), "local": STEPS}
    alone: list[Method] = [Mime(beta=0.0), FedAvg()]
    mime, plain = (after(of_everyone(own, method=m, engine=EVERY_ENGINE[engine], **settings), 2) for m in alone)
    assert close(mime.w, plain.w, 1e-12) and close(mime.client_state["own"], plain.client_state["own"], 1e-12)


@pytest.mark.parametrize("engine", some(ENGINES, "vectorised"))
def test_batchnorm_that_stays_moves_with_the_body_where_the_head_trains_alone(engine: str) -> None:
    """FedRep with FedBN: the head takes its step, and then all else takes one, in plain PyTorch."""
    local = LocalTraining(lr=0.1, batch="full", epochs=1)
    settings: dict[str, Any] = {"data": data((12,)), "sampling": Uniform(1), "local": local, "averages": {}}
    world = with_norm(buffers="local_norm", personal=Personal(("3",), 1), engine=ENGINES[engine], **settings)
    state = after(world, 1)
    whole = world.sharing.with_own(state.w, state.client_state["own"][0])
    plain = _alternating(world)
    trained = world.layout.trained
    assert close(whole[:trained], world.layout.flatten(plain)[:trained], 1e-12)


def _alternating(world: Federation) -> torch.nn.Module:
    """The federation's model after a step of its head and a step of all else."""
    model, samples = world.module_of(world.start().w).train(), world.training_data.train
    assert isinstance(samples.x, torch.Tensor)
    for moves in (("3",), ("0", "1")):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(samples.x), samples.y).backward()
        moving = [p for name, p in model.named_parameters() if name.startswith(moves)]
        torch.optim.SGD(moving, lr=0.1).step()
    return model
