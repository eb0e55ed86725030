"""FedDyn and AdaBest against the identities of their papers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.client import LocalTraining
from fedsash.methods import AdaBest, FedAvg, FedDyn, FedProx, LocalRun, RoundMean, Upload
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.methods.schedules import Exponential
from fedsash.vector.arrays import Vectors
from support.by_default import rotated
from support.worlds import after, federation, quadratic_federation

UNIFORM = FedAvg(weighting="uniform")
close = partial(torch.testing.assert_close, rtol=0, atol=1e-14)


@pytest.mark.parametrize("count, weighting", rotated([1, 4, 6], ["uniform", "samples"]))
def test_feddyns_h_is_the_mean_of_all_g_after_every_round(count: int, weighting: Any) -> None:
    f = federation(method=FedDyn(0.1, weighting=weighting), sampling=Uniform(count))
    state = f.start()
    for _ in range(6):
        state, _ = f.round(state)
        close(state.server_state["h"], state.client_state["g"].mean(0))
    assert float(state.server_state["h"].norm()) > 0


@pytest.mark.parametrize("steps", [1, 4, 200])
def test_feddyns_g_is_the_gradient_where_the_client_ended_as_far_as_it_minimised(steps: int) -> None:
    """On a quadratic the gradient of what the client minimises, grad f_i(w_i) - g_i+, shrinks by a factor a step."""
    (a, b), alpha, eta = torch.tensor([[1.0, 3.0], [0.0, 1.2]], dtype=torch.float64), 0.5, 0.2
    client = LocalTraining(lr=eta, batch="full", steps=steps)
    f = quadratic_federation(a.tolist(), b.tolist(), 0.7, method=FedDyn(alpha), local=client)
    state = f.start()
    for _ in range(5):
        w, g = state.w.clone(), state.client_state["g"][:, 0].clone()
        state, _ = f.round(state)
        w_i = w - (state.client_state["g"][:, 0] - g) / alpha
        left = (1 - eta * (a + alpha)) ** steps * (a * (w - b) - g)
        close(a * (w_i - b) - state.client_state["g"][:, 0], left, atol=1e-13)
    assert steps < 200 or left.abs().max() < 1e-16


def test_feddyn_without_memory_is_uniform_fedprox() -> None:
    """To 1e-12: the proximal term is computed in another order."""

    class Forgetful(FedDyn):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            return {"delta": local.w - local.sent}, {"g": 0 * local.w}

        def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
            return received.mean["delta"], received.server_state

    prox = after(federation(method=FedProx(0.3, weighting="uniform")), 4).w
    close(after(federation(method=Forgetful(0.3)), 4).w, prox, atol=1e-12)


def test_feddyns_model_is_the_clients_mean_less_h_over_alpha() -> None:
    seen: list[Tensor] = []

    class Watched(FedDyn):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            seen.append(local.w[0].clone())
            return super().upload(local)

    f = federation(method=Watched(0.1))
    f.prepare()
    state = f.start()
    for _ in range(4):
        seen.clear()
        state, _ = f.round(state)
        close(state.w, torch.stack(seen).mean(0) - state.server_state["h"] / 0.1, atol=1e-13)


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_adabest_without_mu_and_beta_is_uniform_fedavg_bitwise(variant: Any) -> None:
    adabest = after(federation(method=AdaBest(0.0, 0.0, variant)), 4).w
    assert torch.equal(adabest, after(federation(method=UNIFORM), 4).w)


def test_adabest_without_beta_does_not_need_its_last_average_bitwise() -> None:
    f = federation(method=AdaBest(0.1, 0.0))
    plain, state = after(f, 4).w, f.start()
    for _ in range(4):
        state.server_state["avg"] += 7
        state, _ = f.round(state)
    assert torch.equal(state.w, plain)


def test_adabest_is_its_average_once_that_stands_still() -> None:
    """One step of rate 1/a takes each client to its optimum, so the average is the same in every round."""
    f = quadratic_federation(
        [2.0, 2.0], [1.0, 3.0], 0.5, method=AdaBest(0.0, 0.8), local=LocalTraining(lr=0.5, steps=1)
    )
    assert float(after(f, 1).w) == pytest.approx(2 + 0.8 * (2 - 0.5), abs=1e-14)
    assert float(after(f, 2).w) == pytest.approx(2, abs=1e-14)


def test_adabest_extrapolates_the_clients_average() -> None:
    f = federation(method=AdaBest(0.05, 0.6))
    state = f.start()
    for _ in range(4):
        before = state.server_state["avg"].clone()
        state, _ = f.round(state)
        avg = state.server_state["avg"]
        close(state.w, avg + 0.6 * (avg - before))


def test_adabests_estimate_fades_with_the_rounds_that_a_client_was_away() -> None:
    """After round 0 nobody moves, so that all that happens to the estimate is its division by the time away."""
    still = LocalTraining(lr=0.1, batch=5, schedule=Exponential(1e-300))
    f = federation(method=AdaBest(0.1, 0.0), local=still, sampling=FixedClients(((0,), (0,), (1,), (2,), (0,), (0,))))
    h = after(f, 1).client_state["h"][0]
    assert float(h.norm()) > 1e-4
    for rounds, share in [(2, 1), (4, 1), (5, 1 / 3), (6, 1 / 3)]:
        close(after(f, rounds).client_state["h"][0], h * share)
