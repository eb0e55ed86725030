"""FedSWA, FedMoSWA and server SWA against the identities of their papers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.averages import SWA
from fedsash.client import SGD, LocalTraining
from fedsash.client.plan import factors
from fedsash.methods import FedAvg, FedMoSWA, FedSWA, LocalRun, Scaffold, Upload
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Flat, LocalSchedule, SawTooth
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.vector.arrays import Floats, Ints, Vectors
from support.by_default import rotated, some
from support.worlds import SIZES, after, federation

UNIFORM = FedAvg(weighting="uniform")
close = partial(torch.testing.assert_close, rtol=0, atol=1e-13)


def rough(local_schedule: LocalSchedule | None = None) -> LocalTraining:
    return LocalTraining(
        lr=0.1,
        batch=5,
        epochs=2,
        optimiser=SGD(momentum=0.5, weight_decay=0.01),
        local_schedule=local_schedule or Flat(),
    )


@dataclass(frozen=True)
class Halving(LocalSchedule):
    """The same factor for all clients, as one column or as one for each of them."""

    column: bool

    def factors(self, k: Ints, steps: Ints) -> Floats:
        found: Floats = 0.5**k if self.column else 0.5 ** np.broadcast_to(k, (len(k), len(steps)))
        return found


def test_a_schedule_with_one_column_for_all_clients_multiplies_the_saw_tooth() -> None:
    for method in (FedAvg(), FedSWA(), FedMoSWA()):
        one, each = (factors(rough(Halving(column)), method, np.array([3, 2])) for column in (True, False))
        np.testing.assert_array_equal(one, each)


def test_fedswa_is_fedavg_with_a_saw_tooth_and_a_longer_server_step() -> None:
    """To 1e-13: alpha multiplies before the addition here, with it there."""
    parts = federation(method=UNIFORM, local=rough(SawTooth(0.2)), server=ServerSGD(lr=1.5))
    close(after(federation(method=FedSWA(0.2, 1.5), local=rough()), 5).w, after(parts, 5).w)


def test_fedswa_with_rho_and_alpha_one_is_uniform_fedavg_bitwise() -> None:
    fedavg = after(federation(method=UNIFORM, local=rough()), 4).w
    assert torch.equal(after(federation(method=FedSWA(1.0, 1.0), local=rough()), 4).w, fedavg)


@pytest.mark.parametrize("method", [FedSWA(0.2, 0.0), FedMoSWA(0.2, 0.0)], ids=repr)
def test_with_alpha_zero_the_model_never_moves_bitwise(method: Any) -> None:
    f = federation(method=method)
    assert torch.equal(after(f, 4).w, f.start().w)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_the_rates_of_a_round_have_the_published_sum(rho: float) -> None:
    K = np.array([1, 2, 7, 12])
    rates = 0.4 * factors(LocalTraining(lr=0.4), FedSWA(rho), K)
    np.testing.assert_allclose(rates.sum(0), 0.4 * (K * (1 + rho) + 1 - rho) / 2, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(rates[0], 0.4)


@pytest.mark.parametrize("option", some(["I", "II"], "II"))
def test_fedmoswa_without_saw_tooth_nor_forgetting_and_with_all_clients_is_scaffold(option: Any) -> None:
    everyone = Uniform(len(SIZES))
    moswa = after(federation(method=FedMoSWA(1.0, 1.0, 1.0, option), local=rough(), sampling=everyone), 5)
    scaffold = after(federation(method=Scaffold(option), local=rough(), sampling=everyone), 5)
    close(moswa.w, scaffold.w)
    close(moswa.client_state["c"], scaffold.client_state["c"])
    close(moswa.server_state["m"], scaffold.server_state["c"])


def test_fedmoswa_with_variates_that_stay_zero_is_fedswa_bitwise() -> None:
    class Forgetful(FedMoSWA):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            upload, client_state = super().upload(local)
            return upload | {"c": 0 * upload["c"]}, {"c": 0 * client_state["c"]}

    fedswa = after(federation(method=FedSWA(0.2, 1.5), local=rough()), 4).w
    assert torch.equal(after(federation(method=Forgetful(0.2, 1.5), local=rough()), 4).w, fedswa)


def test_with_gamma_zero_m_stays_zero_while_clients_remember() -> None:
    state = after(federation(method=FedMoSWA(gamma=0.0)), 4)
    assert not state.server_state["m"].any() and state.client_state["c"].any()


@pytest.mark.parametrize("option, weighting", rotated(["I", "II"], ["uniform", "samples"]))
def test_m_is_the_fading_mean_of_the_rounds_new_variates(option: Any, weighting: Any) -> None:
    f = federation(method=FedMoSWA(gamma=0.3, option=option, weighting=weighting))
    state = f.start()
    for t in range(4):
        m, ids = state.server_state["m"].clone(), f.sampling.clients(t, f.data.sizes, f.seed)
        state, _ = f.round(state)
        close(state.server_state["m"], 0.7 * m + 0.3 * state.client_state["c"][ids].mean(0))


@pytest.mark.parametrize("option", ["I", "II"])
def test_fedmoswas_first_round_is_fedswa_bitwise(option: Any) -> None:
    fedswa = after(federation(method=FedSWA(0.2, 1.5)), 1).w
    assert torch.equal(after(federation(method=FedMoSWA(0.2, 1.5, option=option)), 1).w, fedswa)


def test_server_swa_is_the_mean_of_the_models_from_its_start_and_leaves_the_training_alone() -> None:
    f = federation(averages={"swa": SWA(start=3)})
    models, state = [], f.start()
    for _ in range(6):
        state, _ = f.round(state)
        models.append(state.w.clone())
    close(f.models(state)["swa"], torch.stack(models[2:]).mean(0), atol=1e-15)
    assert torch.equal(state.w, after(federation(), 6).w)
