"""SCAFFOLD against the identities of its paper."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.client import SGD, Adam, LocalTraining, Optimiser
from fedsash.data import FederatedData
from fedsash.methods import FedAvg, FedCM, FedMoSWA, LocalRun, Method, MoFedSAM, Scaffold, Step, Upload
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Cyclic, Flat, LocalSchedule, SawTooth
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.vector.arrays import Vectors
from support.by_default import full, rotated, some
from support.worlds import ENGINES, SIZES, Point, after, federation, sampled

EVERYONE, WHOLE = Uniform(len(SIZES)), LocalTraining(lr=0.2, batch="full")
UNIFORM = FedAvg(weighting="uniform")
close = partial(torch.testing.assert_close, rtol=0, atol=1e-13)


@pytest.mark.parametrize("weighting, option, count", rotated(["uniform", "samples"], ["I", "II", "raw"], [1, 4, 6]))
def test_c_is_the_mean_of_all_client_variates_after_every_round(option: Any, count: int, weighting: Any) -> None:
    f = federation(method=Scaffold(option, weighting=weighting), sampling=Uniform(count))
    state = f.start()
    for _ in range(6):
        state, _ = f.round(state)
        close(state.server_state["c"], state.client_state["c"].mean(0), atol=1e-14)
    assert float(state.server_state["c"].norm()) > 0


@pytest.mark.parametrize("option", some(["I", "II", "raw"], "I"))
def test_with_one_full_batch_step_of_all_clients_it_is_gradient_descent_on_their_mean(option: Any) -> None:
    plain = after(federation(method=UNIFORM, local=WHOLE, sampling=EVERYONE), 5).w
    close(after(federation(method=Scaffold(option), local=WHOLE, sampling=EVERYONE), 5).w, plain)


def test_both_options_agree_on_the_variate_of_a_single_full_batch_step() -> None:
    one, two = (after(federation(method=Scaffold(option), local=WHOLE), 3) for option in ("I", "II"))
    close(one.client_state["c"], two.client_state["c"])


@pytest.mark.parametrize("option", ["I", "II"])
def test_its_first_round_is_uniform_fedavg_bitwise(option: Any) -> None:
    assert torch.equal(after(federation(method=Scaffold(option)), 1).w, after(federation(method=UNIFORM), 1).w)


def test_with_variates_that_stay_zero_it_is_uniform_fedavg_bitwise() -> None:
    class Forgetful(Scaffold):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            upload, client_state = super().upload(local)
            return upload | {"c": 0 * upload["c"]}, {"c": 0 * client_state["c"]}

    assert torch.equal(after(federation(method=Forgetful()), 4).w, after(federation(method=UNIFORM), 4).w)


def test_option_two_is_the_mean_gradient_along_the_way_whatever_c_was() -> None:
    """(x - y) / (K eta) is the mean corrected gradient, so c_i+ is the mean of the raw ones, sign included."""
    seen: list[torch.Tensor] = []

    class Watched(Scaffold):
        def direction(self, step: Step) -> torch.Tensor:
            seen.append(step.grad(step.w)[0])
            return super().direction(step)

    f = federation(method=Watched(), sampling=Uniform(1))
    f.prepare()
    state = f.start()
    for _ in range(4):
        seen.clear()
        client = int(sampled(f, state.round)[0])
        state, _ = f.round(state)
        close(state.client_state["c"][client], torch.stack(seen).mean(0))


@pytest.mark.parametrize("engine, method", rotated(ENGINES, [Scaffold, FedMoSWA], turns=2))
def test_for_plain_sgd_the_raw_gradients_are_option_ii(method: Any, engine: str) -> None:
    """Also where clients take unequal steps and the rate falls within a round."""
    local = LocalTraining(lr=0.1, batch=5, epochs=2, local_schedule=SawTooth(0.3))
    settings: dict[str, Any] = {"local": local, "sampling": Uniform(4), "engine": ENGINES[engine]}
    raw, second = (after(federation(method=method(option=option), **settings), 3) for option in ("raw", "II"))
    close(raw.w, second.w)
    close(raw.client_state["c"], second.client_state["c"])
    assert float(raw.client_state["c"].norm()) > 0


def constant(method: Method, optimiser: Optimiser, **local: Any) -> Federation:
    """A federation in which every gradient is 1."""
    x, y = torch.zeros(6, 1, dtype=torch.float64), torch.zeros(6, dtype=torch.int64)
    clients = [np.array([0]), np.arange(1, 6)]
    return federation(
        model=Point([0.7]),
        data=FederatedData.from_arrays(x.numpy(), y.numpy(), clients, classes=1),
        loss=lambda output, y: -output.sum(-1),
        method=method,
        local=LocalTraining(lr=0.1, batch=2, epochs=3, optimiser=optimiser, **local),
        sampling=Uniform(2),
    )


@pytest.mark.parametrize("optimiser", [SGD(0.9, weight_decay=0.1), Adam()], ids=str)
def test_the_raw_variate_is_the_mean_gradient_whatever_the_optimiser(optimiser: Optimiser) -> None:
    """Where every gradient is 1, so are all variates; option II would be wrong by the decay."""
    f = constant(Scaffold("raw"), optimiser)
    assert after(f, 1).client_state["c"].flatten().tolist() == pytest.approx([1.0, 1.0], abs=1e-14)


@pytest.mark.parametrize(
    "optimiser, schedule",
    rotated([SGD(), SGD(0.9), SGD(0.9, nesterov=True), SGD(0.5, dampening=0.3)], [Flat(), SawTooth(0.3)]),
    ids=str,
)
def test_local_momentum_does_not_inflate_what_an_update_says_of_gradients(
    optimiser: Optimiser, schedule: LocalSchedule
) -> None:
    """Where every gradient is 1, so are the variates of option II and FedCM's Delta, round after round."""
    for method, name in ((Scaffold(), "c"), (FedMoSWA(), "c"), (FedCM(), "Delta"), (MoFedSAM(), "Delta")):
        end = after(constant(method, optimiser, local_schedule=schedule), 2)
        expected = 1.0 if name == "c" else 1 - (1 - method.alpha) ** 2
        found = end.client_state["c"] if name == "c" else end.server_state["Delta"]
        assert found.flatten().tolist() == pytest.approx([expected] * found.numel(), abs=1e-13), method


def test_moments_of_earlier_rounds_are_refused_where_an_update_stands_for_a_gradient() -> None:
    for method in (Scaffold(), FedMoSWA(), FedCM(), MoFedSAM()):
        with pytest.raises(SettingError, match="keep_moments = True: must be false, because"):
            constant(method, SGD(0.9), keep_moments=True)
    constant(Scaffold("raw"), SGD(0.9), keep_moments=True)


@pytest.mark.parametrize(
    "method", [Scaffold(), full(Scaffold("raw")), Scaffold("I"), full(FedMoSWA()), FedMoSWA(option="raw")], ids=str
)
def test_a_round_at_rate_0_moves_no_variate(method: Any) -> None:
    """Nothing was learned of the gradients, so what clients remember stays; option I takes its gradient anyway."""
    local = LocalTraining(lr=0.2, batch="full", steps=3, schedule=Cyclic(0, 3, low=0.0))
    world = federation(method=method, local=local, sampling=EVERYONE)
    before, _ = world.round(after(world, 1))
    kept = {name: rows.clone() for name, rows in before.client_state.items()}
    w = before.w.clone()
    state, _ = world.round(before)
    assert torch.equal(state.w, w) and float(kept["c"].norm()) > 0
    assert method.option == "I" or torch.equal(state.client_state["c"], kept["c"])


@pytest.mark.parametrize("method", [FedCM(), MoFedSAM()], ids=str)
def test_a_round_at_rate_0_keeps_the_direction(method: Method) -> None:
    local = LocalTraining(lr=0.2, batch="full", steps=3, schedule=Cyclic(0, 3, low=0.0))
    world = federation(method=method, local=local)
    before, _ = world.round(after(world, 1))
    kept = before.server_state["Delta"].clone()
    state, _ = world.round(before)
    close(state.server_state["Delta"], kept)
    assert float(kept.norm()) > 0
