"""Where methods stop on heterogeneous quadratics: clients f_i(w) = a_i/2 * (w - b_i)^2, several full-batch local steps.

q_i = (1 - eta (a_i + mu))^K is what is left of a client's way after its K steps. At a fixed point the mean update and
all changes of memories are zero; `sum a_i (b_i - w) = 0` is the global optimum w*.

| method | all clients in every round | some |
|---|---|---|
| SCAFFOLD, both options | w* | w* |
| FedDyn | w* | w* |
| Mime | w* | moves on: `c` is of the round's clients |
| FedMoSWA, any rho, alpha > 0, gamma > 0, both options | w* | moves on: so is `m` |
| FedAvg | the mean of b_i with weights 1 - q_i, mu = 0 | moves on |
| FedProx, FedACG for every lam (mu = beta) | the mean of b_i with weights (1 - q_i) a_i / (a_i + mu) | moves on |
| FedCM | that of FedAvg with rate alpha * eta | moves on |
| AdaBest | the optimum of the mean f_i(w) + mu (1 - beta)/2 * (w - w_0)^2 | moves on |
| FedNova, unequal steps | w* of sum p_i f_i, but for a term of order eta | |
| FedAvg, unequal steps | w* of sum p_i K_i f_i, but for a term of order eta | |

FedMoSWA: with all clients, m is still only if the mean c_i+ is m, and w only if the mean update is zero. Option II then
has c_i = c_i - m - delta_i / sum_k eta_k, hence delta_i = -m * sum_k eta_k, whose mean is zero: m = 0, each client
comes back to where it started, which on a quadratic is where its corrected gradient is zero, a_i (w - b_i) = c_i, and
the mean c_i is m = 0. Option I has delta_i = -m (1 - prod_k (1 - eta_k a_i)) / a_i, hence m = 0, the global gradient.

AdaBest: with all clients and none away h_i is still if delta_i = 0, which on a quadratic is h_i = a_i (w - b_i).
The mean h_i is -mu times the sum of all mean updates, and this sum is (1 - beta) (w - w_0).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsash.client import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.methods import (
    AdaBest,
    Aggregation,
    FedACG,
    FedAvg,
    FedCM,
    FedDyn,
    FedMoSWA,
    FedNova,
    FedProx,
    Method,
    Mime,
    Scaffold,
    WeightedMean,
)
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from support.by_default import full, some
from support.worlds import Point, after, federation, quadratic_federation, quadratics

A, B, START = np.array([1.0, 3.0, 0.5]), np.array([0.0, 1.2, -2.0]), 2.0
OPTIMUM = (A @ B) / A.sum()
ETA, K = 0.1, 5
LONG = pytest.mark.parametrize("rounds, near", [(40, 1e-3), pytest.param(150, 1e-9, marks=pytest.mark.full)])
"""After how many rounds a run is how near to where it stops."""


def world(method: Method, steps: int = K, clients: int = 3) -> Federation:
    client = LocalTraining(lr=ETA, batch="full", steps=steps)
    return quadratic_federation([*A], [*B], START, method=method, local=client, sampling=Uniform(clients))


def without_correction(mu: float = 0.0, eta: float = ETA) -> float:
    """Where the mean of clients stops that each follow their own loss and a proximal term."""
    weight = (1 - (1 - eta * (A + mu)) ** K) * A / (A + mu)
    return float((weight @ B) / weight.sum())


@pytest.mark.parametrize(
    "method",
    [
        full(Scaffold("I")),
        Scaffold("II"),
        FedDyn(1.0),
        full(Mime(0.0)),
        pytest.param(Mime(0.6), marks=pytest.mark.slow),
        full(Mime(0.6, damped=False)),
        full(FedMoSWA(0.2, 1.5, 0.4, "I")),
        pytest.param(FedMoSWA(0.2, 1.5, 0.4, "II"), marks=pytest.mark.full),
        FedMoSWA(0.5, 0.7, 0.4),
    ],
    ids=repr,
)
@LONG
def test_with_all_clients_it_reaches_the_global_optimum(method: Method, rounds: int, near: float) -> None:
    assert float(after(world(method), rounds).w) == pytest.approx(OPTIMUM, abs=near)


@LONG
@pytest.mark.parametrize("method", [full(Scaffold("I")), Scaffold("II"), FedDyn(1.0)], ids=repr)
def test_with_some_clients_it_reaches_the_global_optimum(method: Method, rounds: int, near: float) -> None:
    assert float(after(world(method, clients=2), rounds).w) == pytest.approx(OPTIMUM, abs=near)


MOVES_ON = [FedAvg(), FedProx(0.8), FedACG(0.5, 0.8), FedCM(0.5), AdaBest(0.4, 0.3), Mime(0.0), FedMoSWA(0.5, 0.7, 0.4)]


@pytest.mark.parametrize("method", some(MOVES_ON, FedAvg(), AdaBest(0.4, 0.3), Mime(0.0)), ids=repr)
def test_with_some_clients_it_moves_on_for_ever(method: Method) -> None:
    f = world(method, clients=2)
    state, places = after(f, 20), []
    for _ in range(4):
        state = after(f, 1, state)
        places.append(float(state.w))
    assert np.ptp(places) > 0.01


@pytest.mark.parametrize(
    "method, point",
    [
        (FedAvg(), without_correction()),
        full(FedProx(0.8), without_correction(mu=0.8)),
        full(FedACG(0.5, 0.0), without_correction()),
        (FedACG(0.5, 0.8), without_correction(mu=0.8)),
        full(FedCM(0.5), without_correction(eta=0.5 * ETA)),
        (AdaBest(0.4, 0.3), (A @ B + 3 * 0.4 * 0.7 * START) / (A.sum() + 3 * 0.4 * 0.7)),
    ],
    ids=repr,
)
@LONG
def test_it_stops_beside_the_optimum_at_its_analytic_point(
    method: Method, point: float, rounds: int, near: float
) -> None:
    assert float(after(world(method), rounds).w) == pytest.approx(point, abs=near)
    assert abs(point - OPTIMUM) > 0.02


@LONG
@pytest.mark.parametrize("method", [FedAvg(), full(FedProx(0.8)), FedACG(0.5, 0.8)], ids=repr)
def test_with_one_local_step_it_reaches_the_optimum_after_all(method: Method, rounds: int, near: float) -> None:
    assert float(after(world(method, steps=1), 2 * rounds).w) == pytest.approx(OPTIMUM, abs=near)


def resting(eta: float, rule: Aggregation) -> float:
    """Where clients with 1, 4 and 9 samples and as many steps stop; a round is an affine map, so two rounds tell."""
    sizes = [1, 4, 9]
    cuts = np.split(np.arange(14), np.cumsum(sizes)[:-1])
    data = FederatedData.from_arrays(np.repeat(B, sizes)[:, None], np.repeat(np.arange(3), sizes), cuts, classes=3)
    loss, client = quadratics(torch.from_numpy(A)), LocalTraining(lr=eta, batch=1)
    f = federation(model=Point([START]), data=data, loss=loss, local=client, sampling=Uniform(3), aggregation=rule)
    one, two = float(after(f, 1).w), float(after(f, 2).w)
    rate = (two - one) / (one - START)
    assert 0 < rate < 1
    return START + (one - START) / (1 - rate)


def test_with_unequal_steps_fednova_stops_near_the_optimum_and_fedavg_does_not() -> None:
    p, steps = np.array([1, 4, 9]) / 14, np.array([1, 4, 9])
    optimum, biased = ((weight * A) @ B / (weight @ A) for weight in (p, p * steps))
    etas = 0.004 * 0.5 ** np.arange(4)
    nova = [abs(resting(eta, FedNova()) - optimum) for eta in etas]
    mean = [abs(resting(eta, WeightedMean()) - biased) for eta in etas]
    for distances in (nova, mean):
        ratios = np.divide(distances[:-1], distances[1:])
        np.testing.assert_allclose(ratios, 2, rtol=0, atol=0.05)
    assert nova[-1] < 0.01 < 0.1 < abs(biased - optimum)
