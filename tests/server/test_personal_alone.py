"""A personal part that first trains alone in each round (FedRep)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.client import SGD, Adagrad, Adam, LocalTraining, Optimiser, RMSprop
from fedsash.engines import Engine, LocalEngine
from fedsash.methods import (
    AdaBest,
    FedAvg,
    FedMoSWA,
    FedNova,
    FedSAM,
    LocalRun,
    Method,
    Mime,
    MimeLite,
    Scaffold,
    Upload,
)
from fedsash.testing import close, identical
from fedsash.vector.arrays import Vectors
from fedsash.vector.sharing import Personal
from support.by_default import rotated, some
from support.norms import batch_norm_model, with_norm
from support.personal import centrally, one_client, personal, three_layers
from support.worlds import ENGINES, EVERY_ENGINE, after

OPTIMISERS: list[tuple[Optimiser, Callable[..., Any]]] = [
    (SGD(), torch.optim.SGD),
    (SGD(momentum=0.5, weight_decay=0.1), partial(torch.optim.SGD, momentum=0.5, weight_decay=0.1)),
    (SGD(momentum=0.5, dampening=0.3), partial(torch.optim.SGD, momentum=0.5, dampening=0.3)),
    (Adam(), torch.optim.Adam),
    (RMSprop(), torch.optim.RMSprop),
    (Adagrad(lr_decay=0.1), partial(torch.optim.Adagrad, lr_decay=0.1)),
]


@pytest.mark.parametrize("engine, number", rotated(ENGINES, range(len(OPTIMISERS)), turns=4))
def test_one_client_is_alternating_central_training(engine: str, number: int) -> None:
    """Each part has an optimiser of its own, whose moments and count of steps rest with it."""
    optimiser, make = OPTIMISERS[number]
    with one_client(Personal(("4",), 2), optimiser, engine=ENGINES[engine]) as world:
        state = world.start()
        for _ in range(3):
            state, _ = world.round(state)
    whole = world.sharing.with_own(state.w, state.client_state["own"][0])
    plain = centrally(three_layers(), world, [(["4"], 2), (["0", "2"], 3)], make, 3)
    assert close(whole, world.layout.flatten(plain), 1e-12)


def test_the_lower_layers_may_train_alone_first_and_moments_may_begin_anew() -> None:
    local = LocalTraining(lr=0.1, batch="full", steps=3, optimiser=SGD(momentum=0.5))
    world = one_client(Personal("extractor", 4), SGD(), local=local)
    state = after(world, 1)
    whole = world.sharing.with_own(state.w, state.client_state["own"][0])
    make = partial(torch.optim.SGD, momentum=0.5)
    plain = centrally(three_layers(), world, [(["0", "2"], 4), (["4"], 3)], make, 1)
    assert close(whole, world.layout.flatten(plain), 1e-12)


class Asking(FedAvg):
    """FedAvg whose clients remember their gradient at the model that they received, and say so nowhere else."""

    def client_state(self, w: Tensor) -> Vectors:
        return {"g": torch.zeros_like(w)}

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta}, {"g": local.full_grad(local.sent.expand_as(local.w))}


FULL_GRADIENTS: dict[str, tuple[Method, Callable[[Any], Any]]] = {
    "SCAFFOLD I": (Scaffold(option="I"), lambda state: state.client_state["c"]),
    "FedMoSWA I": (FedMoSWA(option="I"), lambda state: state.client_state["c"]),
    "MimeLite": (MimeLite(), lambda state: state.server_state["m"]),
}


@pytest.mark.parametrize("engine, name", rotated(ENGINES, FULL_GRADIENTS, turns=2))
def test_full_gradients_are_taken_with_the_part_as_it_was_received_and_not_as_it_has_trained_alone(
    engine: str, name: str
) -> None:
    """So after one round they do not depend on how long the part trains alone, nor on whether it does."""
    method, gradients = FULL_GRADIENTS[name]
    check_full_gradients(method, gradients, ENGINES[engine])


def test_full_gradients_that_a_method_of_ones_own_takes_without_a_word_are_too() -> None:
    check_full_gradients(Asking(), lambda state: state.client_state["g"], ENGINES["sequential"])


def check_full_gradients(method: Method, gradients: Callable[[Any], Any], engine: Engine) -> None:
    found = []
    for alone in (0, 1, 3):
        with personal(Personal(("4",), alone), method=method, engine=engine) as world:
            state, _ = world.round(world.start())
            found.append(gradients(state))
    assert found[0].norm() > 0
    assert close(found[0], found[1], 1e-12) and close(found[0], found[2], 1e-12)


IN_TURN: list[Method] = [FedAvg(), Scaffold(), FedSAM(), Mime(), AdaBest()]


@pytest.mark.parametrize(
    "kind, method",
    [
        *rotated(["vectorised", "workers"], IN_TURN, turns=2),
        pytest.param("spawned", FedAvg(), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_engine_trains_the_parts_in_turn(kind: str, method: Method) -> None:
    engine, optimiser = EVERY_ENGINE[kind], SGD(momentum=0.5, dampening=0.2)
    local = LocalTraining(lr=0.1, batch=5, epochs=(1, 3), clip=1.0, keep_moments=True)
    if not method.why_sgd:
        local = LocalTraining(lr=0.1, batch=5, epochs=(1, 3), clip=1.0, keep_moments=True, optimiser=optimiser)
    settings: dict[str, Any] = {"method": method, "local": local}
    expected = after(personal(Personal("classifier", 2), **settings), 2)
    found = after(personal(Personal("classifier", 2), engine=engine, **settings), 2)
    assert close(found, expected, 1e-12)
    assert kind == "vectorised" or identical(found, expected)


@pytest.mark.parametrize(
    "buffers, part", rotated(["average", "local", "local_norm"], ["classifier", "0", "1"], turns=1)
)
def test_it_goes_with_every_choice_for_batch_norm(buffers: Any, part: str) -> None:
    worlds = [
        with_norm(buffers=buffers, personal=Personal(part, 1), engine=ENGINES[engine])
        for engine in ("sequential", "vectorised", "workers")
    ]
    states = [after(world, 2) for world in worlds]
    assert close(states[1], states[0], 1e-12) and identical(states[2], states[0])
    own = 27 if part == "classifier" else 40 if part == "0" else 33
    more = {"average": 0, "local": 17, "local_norm": 33}[buffers] if part != "1" else 0
    assert states[0].client_state["own"].shape[1] == own + more


def test_personal_batch_norm_needs_no_choice_of_buffers() -> None:
    world = with_norm(buffers="refuse", personal="1")
    assert after(world, 2).client_state["own"].shape[1] == 33
    with pytest.raises(ValueError, match=r"statistics of each client's data: 1; set buffers to"):
        with_norm(buffers="refuse", personal="0")
    assert world.layout.size == sum(t.numel() for t in batch_norm_model().state_dict().values())


@pytest.mark.parametrize("option", ["II", "raw"])
def test_the_method_counts_the_steps_of_the_shared_part_only(option: Any) -> None:
    """SCAFFOLD's variate is the mean gradient over the 3 steps in which the shared part moved."""
    world = one_client(Personal("classifier", 5), SGD(), method=Scaffold(option=option))
    state = after(world, 1)
    moved = (world.start().w - state.w)[: world.sharing.common_size]
    assert close(state.client_state["c"][0], moved / (3 * 0.1), 1e-12)


def test_the_effort_has_the_passes_of_both_parts() -> None:
    with personal(Personal("classifier", 3)) as world:
        state = world.start()
        request = world.ask(state)
        samples = {}
        for reply in world.executor.work(request):
            samples |= dict(zip(request.ids[reply.places].tolist(), reply.effort.samples.tolist(), strict=True))  # type: ignore[union-attr]
    assert samples == {client: 5 * int(world.sizes[client]) for client in request.ids.tolist()}


@pytest.mark.parametrize("tau", some(["steps", "coefficients"], "coefficients"))
def test_fednova_counts_the_steps_of_the_shared_part_only(tau: Any) -> None:
    """With as many steps for all, plain SGD and one part alone first, it is the mean."""
    part = Personal("classifier", 3)
    local = LocalTraining(lr=0.1, batch="full", steps=4)
    nova = after(personal(part, local=local, aggregation=FedNova(tau=tau)), 3)
    assert close(nova.w, after(personal(part, local=local), 3).w, 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("method", [FedAvg(), Scaffold(), FedSAM()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("part", ["classifier", Personal("classifier", 2)], ids=str)
def test_compiled_steps_train_the_same(part: Any, method: Method) -> None:
    compiled = after(personal(part, method=method, engine=LocalEngine("vectorised", 1, 4, True, "contiguous", 1)), 2)
    assert close(compiled, after(personal(part, method=method), 2), 1e-12)
