"""Laws of what the naive account's methods remember from round to round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsash.client import LocalTraining
from fedsash.methods.sampling import Uniform
from support.accounts import FA, PLAIN, SAMPLES, naive, net, same, world
from support.naive import KINDS, run
from support.worlds import SIZES, data


@pytest.mark.parametrize(
    "kind, options, server",
    [
        ("scaffold", {"option": "I"}, "c"),
        ("scaffold", {"option": "II"}, "c"),
        ("feddyn", {"alpha": 0.1}, "h"),
        ("feddyn", {"alpha": 0.1} | SAMPLES, "h"),
    ],
)
def test_a_naive_servers_vector_is_the_mean_of_all_clients(kind: str, options: dict[str, Any], server: str) -> None:
    for rounds in (1, 2, 5):
        end = naive(kind, rounds, **options)
        (own,) = (name for name in end if name.startswith("client_state/"))
        np.testing.assert_allclose(end[server], end[own].mean(0), rtol=0, atol=1e-14)
        assert np.abs(end[server]).max() > 1e-3


def test_naive_fedcm_and_mimelite_with_one_full_batch_step_of_all_are_the_damped_heavy_ball() -> None:
    everyone, alpha, rounds = world(LocalTraining(batch="full"), sampling=Uniform(len(SIZES))), 0.3, 6
    own, w, m = net(everyone), everyone.start().w.numpy(), np.zeros(43)
    for _ in range(rounds):
        m = (1 - alpha) * m + alpha * np.mean([own.gradient(w, z) for z in everyone.data.clients], axis=0)
        w = w - 0.1 * m
    fedcm = run(everyone, rounds, "fedcm", {"alpha": alpha}, **PLAIN)
    mimelite = run(everyone, rounds, "mimelite", {"beta": 1 - alpha, "damped": True}, **PLAIN)
    np.testing.assert_allclose(fedcm["w"], w, rtol=0, atol=1e-14)
    np.testing.assert_allclose(fedcm["Delta"], m, rtol=0, atol=1e-14)
    np.testing.assert_allclose(mimelite["w"], w, rtol=0, atol=1e-14)
    np.testing.assert_allclose(mimelite["m"], m, rtol=0, atol=1e-14)


def test_naive_mime_with_one_full_batch_step_is_gradient_descent_on_the_rounds_clients() -> None:
    f = world(LocalTraining(batch="full"))
    own, w = net(f), f.start().w.numpy()
    for t in range(4):
        ids = f.sampling.clients(t, f.data.sizes, f.seed)
        w = w - 0.1 * np.mean([own.gradient(w, f.data.clients[i]) for i in ids], axis=0)
    mime = run(f, 4, "mime", {"beta": 0.0, "damped": True}, **PLAIN)
    np.testing.assert_allclose(mime["w"], w, rtol=0, atol=1e-14)


def test_naive_mime_undamped_is_the_damped_one_with_a_longer_step() -> None:
    """m and the direction are 1/(1 - beta) times as large, so a rate (1 - beta) times as high gives the same models."""
    for kind in ("mime", "mimelite"):
        damped = run(world(), 4, kind, {"beta": 0.6, "damped": True}, **PLAIN)
        undamped = run(world(), 4, kind, {"beta": 0.6, "damped": False}, **PLAIN | {"lr": 0.04})
        same(damped, undamped)
        np.testing.assert_allclose(damped["m"], 0.4 * undamped["m"], rtol=0, atol=1e-13)


def test_naive_fedacgs_model_moves_by_its_momentum() -> None:
    options: dict[str, Any] = {"lam": 0.85, "beta": 0.1}
    a, b = (run(world(), rounds, "fedacg", options, **PLAIN) for rounds in (3, 4))
    np.testing.assert_allclose(b["w"] - a["w"], b["m"], rtol=0, atol=1e-14)


def test_naive_feddyn_is_its_code_which_keeps_the_sum_of_ways() -> None:
    """FedDyn's repository keeps L_i = -g_i / alpha; its cloud model is mean_i w_i plus the mean of all L_i."""
    f, alpha, rounds = world(), 0.1, 4
    a, b = (run(f, r, "feddyn", {"alpha": alpha}, **PLAIN) for r in (rounds - 1, rounds))
    ids = f.sampling.clients(rounds - 1, f.data.sizes, f.seed)
    ways = (a["client_state/g"] - b["client_state/g"])[ids] / alpha
    L = -b["client_state/g"] / alpha
    np.testing.assert_allclose(b["w"], a["w"] + ways.mean(0) + L.mean(0), rtol=0, atol=1e-13)


def test_naive_adabest_extrapolates_the_clients_average() -> None:
    options: dict[str, Any] = {"mu": 0.05, "beta": 0.6, "variant": "paper"}
    a, b = (run(world(), rounds, "adabest", options, **PLAIN) for rounds in (3, 4))
    np.testing.assert_allclose(b["w"], b["avg"] + 0.6 * (b["avg"] - a["avg"]), rtol=0, atol=1e-14)
    ids = np.setdiff1d(np.arange(len(SIZES)), world().sampling.clients(3, np.array(SIZES), 3))
    assert np.array_equal(a["client_state/h"][ids], b["client_state/h"][ids])


def test_naive_adabests_code_with_equal_clients_and_full_batches_is_its_paper_with_mu_times_epochs() -> None:
    f = world(LocalTraining(batch=6, epochs=3), data=data((6, 6, 6, 6, 6)))
    code = naive("adabest", f=f, mu=0.05, beta=0.6, variant="code")
    paper = naive("adabest", f=f, mu=0.15, beta=0.6, variant="paper")
    same(code, paper)
    np.testing.assert_allclose(0.15 * code["client_state/h"], paper["client_state/h"], rtol=0, atol=1e-13)


def test_naive_fedlesam_climbs_back_towards_the_model_received_last() -> None:
    f, rho = world(), 0.5
    method = KINDS["fedlesam"](net(f), f, np.zeros(43), {"rho": rho})
    before, now, z = *np.random.default_rng(0).normal(size=(2, 43)), np.arange(9)
    method.begin(0, np.array([0]), before)
    method.leave(0, now, [0.1])
    method.begin(3, np.array([0]), now)
    method.enter(0)
    expected = net(f).gradient(now + rho * (before - now) / np.linalg.norm(before - now), z)
    np.testing.assert_allclose(method.direction(0, now, z), expected, rtol=0, atol=1e-15)


def test_naive_fisher_of_one_full_batch_step_is_the_mean_squared_gradient_of_the_round() -> None:
    f = world(LocalTraining(batch="full"))
    a, b = (run(f, r, "ewc", {"mu": 2.0}, **PLAIN) for r in (2, 3))
    ids = f.sampling.clients(2, f.data.sizes, f.seed)
    squares = [net(f).gradient(a["w"], f.data.clients[i]) ** 2 for i in ids]
    expected = np.average(squares, axis=0, weights=f.data.sizes[ids])
    np.testing.assert_allclose(b["fisher"], expected, rtol=0, atol=1e-15)


def test_naive_fedmoswas_m_is_the_fading_mean_of_new_variates() -> None:
    for option in ("I", "II"):
        options: dict[str, Any] = {"rho": 0.2, "alpha": 1.3, "gamma": 0.3, "option": option}
        f = world()
        a, b = (naive("fedmoswa", r, f, **options) for r in (3, 4))
        ids = f.sampling.clients(3, f.data.sizes, f.seed)
        np.testing.assert_allclose(b["m"], 0.7 * a["m"] + 0.3 * b["client_state/c"][ids].mean(0), rtol=0, atol=1e-14)


def test_naive_saw_tooths_sum_has_its_closed_form() -> None:
    f, rho = world(), 0.3
    method = KINDS["fedswa"](net(f), f, np.zeros(43), {"rho": rho, "alpha": 1.0})
    for K in (1, 2, 7, 12):
        total = sum(method.factor(k, K) for k in range(K))
        assert total == pytest.approx((K * (1 + rho) + 1 - rho) / 2, abs=1e-13)


def test_naive_anchors_of_a_model_at_rest_go_to_the_mean_features_of_their_class() -> None:
    f, epochs = world(LocalTraining(batch=100, epochs=3), sampling=Uniform(len(SIZES))), 3
    own, w, keep = net(f), f.start().w.numpy(), FA["momentum"] ** epochs
    expected = np.zeros((3, 5))
    for z in f.data.clients:
        anchors = np.eye(5)[:3]
        for c in np.unique(own.y[z]):
            mean = own.features(w, z[own.y[z] == c]).mean(0)
            anchors[c] = keep * anchors[c] + (1 - keep) * mean
        expected += len(z) / sum(SIZES) * anchors
    end = run(f, 1, "fedfa", FA | {"calibration": 0.0}, **PLAIN | {"lr": 1e-300})
    np.testing.assert_allclose(end["anchors"], expected, rtol=0, atol=1e-14)
