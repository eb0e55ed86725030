"""FedCM, FedACG, Mime and MimeLite against the identities of their papers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.client import SGD, LocalTraining
from fedsash.methods import FedACG, FedAvg, FedCM, FedProx, LocalRun, Method, Mime, MimeLite, Step, Upload
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Exponential
from fedsash.server.federation import Federation
from fedsash.vector.arrays import Vectors
from support.by_default import full, rotated
from support.worlds import SIZES, after, federation, mlp, quadratic_federation

EVERYONE, WHOLE = Uniform(len(SIZES)), LocalTraining(lr=0.1, batch="full")
ROUGH = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5, weight_decay=0.01))
UNIFORM = FedAvg(weighting="uniform")
close = partial(torch.testing.assert_close, rtol=0, atol=1e-14)


def global_gradient(f: Federation, w: Tensor) -> Tensor:
    """The gradient at `w` of the clients' mean loss."""
    with f.layout.applied(f.model, w.clone()):
        losses = f.goal.loss(f.model(f.data.train.x), f.data.train.y)
        mean = torch.stack([losses[torch.from_numpy(own)].mean() for own in f.data.clients]).mean()
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(mean, f.layout.tensors(f.model))])


@pytest.mark.parametrize(
    "method, limit",
    [
        (FedCM(1.0), UNIFORM),
        full(FedACG(0.0, 0.0), UNIFORM),
        (FedACG(0.0, 0.3), FedProx(0.3, weighting="uniform")),
        (MimeLite(0.0), UNIFORM),
        full(MimeLite(0.0, damped=False), UNIFORM),
    ],
    ids=repr,
)
def test_limits_hold_bitwise(method: Method, limit: Method) -> None:
    assert torch.equal(
        after(federation(method=method, local=ROUGH), 4).w, after(federation(method=limit, local=ROUGH), 4).w
    )


@pytest.mark.parametrize("method", [FedCM(0.3), Mime(0.7), MimeLite(0.7)], ids=repr)
def test_with_one_full_batch_step_of_all_it_is_damped_heavy_ball_on_the_global_loss(method: Method) -> None:
    """Also where the rate falls from round to round: what is remembered is in units of a gradient."""
    client = LocalTraining(lr=0.1, batch="full", schedule=Exponential(0.9))
    f = federation(method=method, local=client, sampling=EVERYONE)
    (name,) = f.start().server_state
    w, m = f.start().w, torch.zeros(f.layout.size, dtype=torch.float64)
    for t in range(5):
        m = 0.7 * m + 0.3 * global_gradient(f, w)
        w = w - 0.1 * 0.9**t * m
    end = after(f, 5)
    close(end.w, w)
    close(end.server_state[name], m, atol=1e-13)


def test_fedcm_with_one_full_batch_step_is_mimelite_whoever_takes_part() -> None:
    fedcm, lite = (after(federation(method=method, local=WHOLE), 5) for method in (FedCM(0.3), MimeLite(0.7)))
    close(fedcm.w, lite.w)
    close(fedcm.server_state["Delta"], lite.server_state["m"])


def test_fedcms_first_round_is_fedavg_with_alpha_times_the_rate() -> None:
    slow = after(federation(method=UNIFORM, local=LocalTraining(lr=0.03, batch=5, epochs=2)), 1).w
    close(after(federation(method=FedCM(0.3)), 1).w, slow)


@pytest.mark.parametrize("beta, lam", rotated([0.0, 0.3], [0.0, 0.5, 0.9]))
def test_fedacgs_model_is_the_mean_of_the_clients_whatever_lam_and_beta(lam: float, beta: float) -> None:
    seen: list[Tensor] = []

    class Watched(FedACG):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            seen.append(local.w[0].clone())
            return super().upload(local)

    f = federation(method=Watched(lam, beta))
    f.prepare()
    state = f.start()
    for _ in range(4):
        seen.clear()
        before = state.w.clone()
        state, _ = f.round(state)
        close(state.w, torch.stack(seen).mean(0))
        close(state.w, before + state.server_state["m"])


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_mime_with_one_full_batch_step_is_gradient_descent_on_the_rounds_clients(weighting: Any) -> None:
    plain = after(federation(method=FedAvg(weighting=weighting), local=WHOLE), 5).w
    close(after(federation(method=Mime(0.0, weighting=weighting), local=WHOLE), 5).w, plain)


def test_mimes_first_step_is_c_bitwise_whatever_the_batch_and_the_dropout() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    class Watched(Mime):
        def direction(self, step: Step) -> Tensor:
            seen.append((super().direction(step)[0], step.server_state["c"]))
            return seen[-1][0].unsqueeze(0)

    after(federation(model=mlp(0.5), method=Watched(0.0), local=LocalTraining(lr=0.1, batch=2, steps=1)), 2)
    assert len(seen) >= 8
    assert all(torch.equal(direction, c) for direction, c in seen)


def test_mime_clients_with_equal_hessians_stay_together_and_descend_on_the_mean() -> None:
    seen: list[float] = []

    class Watched(Mime):
        def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
            seen.append(float(local.w))
            return super().upload(local)

    a, b, eta, steps, start = 2.0, [0.0, 1.5, -3.0], 0.1, 5, 0.4
    client = LocalTraining(lr=eta, batch="full", steps=steps)
    f = quadratic_federation([a] * 3, b, start, method=Watched(0.0), local=client)
    f.prepare()
    seen.clear()
    after(f, 1)
    expected = -0.5 + (1 - eta * a) ** steps * (start + 0.5)
    assert seen[-3:] == pytest.approx([expected] * 3, abs=1e-14)


@pytest.mark.parametrize("kind", [full(Mime), MimeLite])
def test_undamped_momentum_is_the_damped_one_with_a_longer_step(kind: Any) -> None:
    """m and the direction are 1/(1 - beta) times as large, so a rate (1 - beta) times as high gives the same models."""
    damped = after(federation(method=kind(0.6), local=LocalTraining(lr=0.1, batch=5, epochs=2)), 4)
    undamped = after(federation(method=kind(0.6, damped=False), local=LocalTraining(lr=0.04, batch=5, epochs=2)), 4)
    close(damped.w, undamped.w, atol=1e-13)
    close(damped.server_state["m"], 0.4 * undamped.server_state["m"], atol=1e-13)
