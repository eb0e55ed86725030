"""The naive account's network, step and aggregations, and the limits in which its methods are each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash.client import LocalTraining
from fedsash.methods.sampling import Uniform
from support.accounts import CLIENT, FA, PLAIN, UNIFORM, naive, net, same, world
from support.by_default import some
from support.naive import CLASSIFIER, KINDS, Array, Net, aggregate, cross_entropy, normaliser, run
from support.worlds import SIZES

# The naive account of the network and of a step


def test_the_naive_gradient_is_the_slope_of_the_naive_loss_and_pytorchs_gradient() -> None:
    f = world()
    own, z, w = net(f), np.arange(11), f.start().w.numpy()
    pull = np.random.default_rng(0).normal(size=(11, 5))

    def loss(w: Array) -> float:
        return own.loss(w, z) + float((pull * own.features(w, z)).sum())

    step = 1e-6 * np.eye(len(w))
    slope = np.array([(loss(w + e) - loss(w - e)) / 2e-6 for e in step])
    np.testing.assert_allclose(own.gradient(w, z, pull), slope, rtol=0, atol=1e-8)
    f.goal.loss(f.model(f.data.train.x[:11]), f.data.train.y[:11]).mean().backward()
    theirs = np.concatenate([p.grad.numpy().ravel() for p in f.model.parameters() if p.grad is not None])
    np.testing.assert_allclose(own.gradient(w, z), theirs, rtol=0, atol=1e-15)


def test_the_naive_gradient_of_the_classifier_is_the_slope_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    v, h, y = rng.normal(size=18), np.eye(5)[:3], np.arange(3)
    step = 1e-6 * np.eye(18)
    slope = np.array([(cross_entropy(v + e, h, y)[0] - cross_entropy(v - e, h, y)[0]) / 2e-6 for e in step])
    np.testing.assert_allclose(cross_entropy(v, h, y)[1], slope, rtol=0, atol=1e-8)


def test_one_naive_client_is_pytorchs_sgd() -> None:
    f = world(LocalTraining(batch="full", epochs=4), sampling=Uniform(1))
    (only,) = f.sampling.clients(0, f.data.sizes, f.seed)
    w = run(f, 1, "fedavg", {}, decay=1.0, server_lr=1.0, **CLIENT)["w"]
    optimiser = torch.optim.SGD(f.model.parameters(), **CLIENT)
    own = torch.from_numpy(f.data.clients[only])
    for _ in range(4):
        optimiser.zero_grad()
        f.goal.loss(f.model(f.data.train.x[own]), f.data.train.y[own]).mean().backward()
        optimiser.step()
    np.testing.assert_allclose(w, f.layout.flatten(f.model).numpy(), rtol=0, atol=1e-14)


def test_the_anchor_methods_adam_is_pytorchs() -> None:
    """A client of one sample whose SGD stands still: only the calibration moves it."""
    f = world(LocalTraining(batch=5, epochs=6), sampling=Uniform(1))
    w = run(f, 1, "fedfa", FA, **PLAIN | {"lr": 1e-300})["w"]
    last = f.model[2]
    (only,) = f.sampling.clients(0, f.data.sizes, f.seed)
    optimiser = torch.optim.Adam(last.parameters(), lr=0.01)
    for _ in range(6 * -(-SIZES[only] // 5)):
        optimiser.zero_grad()
        nn.functional.cross_entropy(last(torch.eye(5).double()[:3]), torch.arange(3)).backward()
        optimiser.step()
    np.testing.assert_allclose(w, f.layout.flatten(f.model).numpy(), rtol=0, atol=1e-13)
    assert np.abs(w - world().start().w.numpy())[CLASSIFIER].max() > 0.01


# Limits in which naive methods are each other

LIMITS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("fedprox", {"mu": 0.0}, "fedavg", {}),
    ("adabest", {"mu": 0.0, "beta": 0.0, "variant": "paper"}, "fedavg", UNIFORM),
    ("adabest", {"mu": 0.0, "beta": 0.0, "variant": "code"}, "fedavg", UNIFORM),
    ("fedcm", {"alpha": 1.0}, "fedavg", UNIFORM),
    ("fedacg", {"lam": 0.0, "beta": 0.3}, "fedprox", UNIFORM | {"mu": 0.3}),
    ("mimelite", {"beta": 0.0, "damped": True}, "fedavg", UNIFORM),
    ("mime", {"beta": 0.0, "damped": True}, "mime", {"beta": 0.0, "damped": False}),
    ("fedsam", {"rho": 0.0}, "fedavg", {}),
    ("fedasam", {"rho": 0.0, "eta": 0.2}, "fedavg", {}),
    ("mofedsam", {"alpha": 1.0, "rho": 0.1}, "fedsam", UNIFORM | {"rho": 0.1}),
    ("mofedsam", {"alpha": 0.3, "rho": 0.0}, "fedcm", {"alpha": 0.3}),
    ("fedlesam", {"rho": 0.0}, "fedavg", UNIFORM),
    ("fedfa", FA | {"lam": 0.0, "calibration": 0.0}, "fedavg", {}),
    ("fedfa", FA | {"anchors_from": 9, "calibrate_from": 9}, "fedavg", {}),
    ("fedswa", {"rho": 1.0, "alpha": 1.0}, "fedavg", UNIFORM),
    ("ewc", {"mu": 0.0}, "fedavg", {}),
    ("fedavg", {"aggregation": "fedgma", "threshold": 0.0, "mask": "soft"}, "fedavg", {}),
    ("fedavg", {"aggregation": "fedgma", "threshold": 0.0, "mask": "hard"}, "fedavg", {}),
]
SHOWN = ("fedprox", "adabest", "mime", "mofedsam", "fedfa", "ewc")


@pytest.mark.parametrize("kind, options, other, others", some((pytest.param(*one) for one in LIMITS), *SHOWN))
def test_in_its_limit_a_naive_method_is_another(
    kind: str, options: dict[str, Any], other: str, others: dict[str, Any]
) -> None:
    same(naive(kind, **options), naive(other, **others))


@pytest.mark.parametrize("kind, options", [("scaffold", {"option": "II"}), ("fedlesam", {"rho": 0.5})])
def test_the_first_naive_round_of_a_method_with_empty_memories_is_uniform_fedavg(
    kind: str, options: dict[str, Any]
) -> None:
    same(naive(kind, 1, **options), naive("fedavg", 1, **UNIFORM))
    assert np.abs(naive(kind, **options)["w"] - naive("fedavg", **UNIFORM)["w"]).max() > 1e-4


def test_naive_fedmoswa_without_forgetting_nor_saw_tooth_is_scaffold() -> None:
    everyone = world(sampling=Uniform(len(SIZES)))
    options: dict[str, Any] = {"rho": 1.0, "alpha": 1.0, "gamma": 1.0, "option": "II"}
    a, b = naive("fedmoswa", f=everyone, **options), naive("scaffold", f=everyone, option="II")
    same(a, b)
    np.testing.assert_allclose(a["m"], b["c"], rtol=0, atol=1e-13)
    np.testing.assert_allclose(a["client_state/c"], b["client_state/c"], rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["fedsam", "mofedsam", "fedasam"])
def test_naive_perturbations_climb_furthest_within_their_ball(kind: str) -> None:
    """Of all e with ||e / T|| = rho none climbs more than e = rho * T^2 g / ||T g||, whose <g, e> is rho * ||T g||."""
    f, rho, eta, z = world(), 0.3, 0.2, np.arange(9)
    y = f.start().w.numpy()
    seen: list[Array] = []

    class Watched(Net):
        def gradient(self, w: Array, z: Any, pull: Any = 0.0) -> Array:
            seen.append(w)
            return super().gradient(w, z, pull)

    watched = Watched(f.data.train.x.numpy(), f.data.train.y.numpy())
    KINDS[kind](watched, f, y, {"rho": rho, "eta": eta}).g(y, z)
    g, e = net(f).gradient(y, z), seen[-1] - y
    T = np.ones(43)
    if kind == "fedasam":
        T[:20], T[25:40] = np.abs(y[:20]) + eta, np.abs(y[25:40]) + eta
    assert np.linalg.norm(e / T) == pytest.approx(rho, abs=1e-14)
    assert g @ e == pytest.approx(rho * np.linalg.norm(T * g), abs=1e-14)


# Naive aggregations


@pytest.mark.parametrize("K", [1, 2, 9])
def test_naive_normalisers_have_their_closed_forms(K: int) -> None:
    lr, rho, mu = 0.1, 0.8, 0.7
    rates = [lr] * K
    assert normaliser(rates, lr, 0.0, 0.0) == pytest.approx(K)
    heavy = (K - rho * (1 - rho**K) / (1 - rho)) / (1 - rho)
    assert normaliser(rates, lr, rho, 0.0) == pytest.approx(heavy, abs=1e-13)
    assert normaliser(rates, lr, 0.0, mu) == pytest.approx((1 - (1 - lr * mu) ** K) / (lr * mu), abs=1e-13)


@pytest.mark.parametrize("tau", ["coefficients", "steps"])
def test_naive_fednova_of_clients_with_equal_steps_is_their_mean(tau: str) -> None:
    deltas, p = np.random.default_rng(0).normal(size=(3, 4)), np.array([0.5, 0.3, 0.2])
    a = np.full(3, 7.0)
    got = aggregate({"aggregation": "fednova", "tau": tau}, p, deltas, a, a)
    np.testing.assert_allclose(got, p @ deltas, rtol=0, atol=1e-15)


def test_naive_fedgma_by_hand() -> None:
    deltas, p = np.array([[1.0, 2.0, -1.0], [3.0, -1.0, 0.0], [5.0, 1.0, -2.0], [1.0, 4.0, -1.0]]), np.full(4, 0.25)
    soft, hard = (
        aggregate({"aggregation": "fedgma", "threshold": 0.8, "mask": mask}, p, deltas, p, p)
        for mask in ("soft", "hard")
    )
    np.testing.assert_allclose(soft, [2.5, 0.5 * 1.5, 0.75 * -1.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(hard, [2.5, 0.0, 0.0], rtol=0, atol=1e-15)
