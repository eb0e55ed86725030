"""The naive account against its own identities, and every method of the library against the naive account."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from naive import CLASSIFIER, KINDS, Array, Net, aggregate, cross_entropy, normaliser, run
from torch import nn
from worlds import ENGINES, SIZES, data, federation

from fedsash.aggregation import AGGREGATIONS
from fedsash.federation import Federation
from fedsash.local import Client
from fedsash.methods import METHODS
from fedsash.sampling import Uniform
from fedsash.schedules import Exponential
from fedsash.servers import SGD

CLIENT: dict[str, Any] = {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.02}
TRAINING: dict[str, Any] = CLIENT | {"decay": 0.9, "server_lr": 0.7}
PLAIN: dict[str, Any] = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "decay": 1.0, "server_lr": 1.0}
FA: dict[str, Any] = {"lam": 0.3, "momentum": 0.6, "calibration": 0.01, "anchors_from": 0, "calibrate_from": 0}
ADABEST: dict[str, Any] = {"mu": 0.05, "beta": 0.6, "variant": "paper"}
UNIFORM: dict[str, Any] = {"weighting": "uniform"}
SAMPLES: dict[str, Any] = {"weighting": "samples"}


def world(client: Client | None = None, **settings: Any) -> Federation:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return federation(model=model, client=client or Client(batch=5, epochs=3), **settings)


def naive(kind: str, rounds: int = 5, f: Federation | None = None, **options: Any) -> dict[str, Array]:
    """The naive account of a run with momentum, decay, a server rate and partial participation."""
    return run(f or world(), rounds, kind, options, **TRAINING)


def same(a: dict[str, Array], b: dict[str, Array], atol: float = 1e-13) -> None:
    np.testing.assert_allclose(a["w"], b["w"], rtol=0, atol=atol)


def net(f: Federation) -> Net:
    return Net(f.data.train.x.numpy(), f.data.train.y.numpy())


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
    f.loss(f.model(f.data.train.x[:11]), f.data.train.y[:11]).mean().backward()
    theirs = np.concatenate([p.grad.numpy().ravel() for p in f.model.parameters() if p.grad is not None])
    np.testing.assert_allclose(own.gradient(w, z), theirs, rtol=0, atol=1e-15)


def test_the_naive_gradient_of_the_classifier_is_the_slope_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    v, h, y = rng.normal(size=18), np.eye(5)[:3], np.arange(3)
    step = 1e-6 * np.eye(18)
    slope = np.array([(cross_entropy(v + e, h, y)[0] - cross_entropy(v - e, h, y)[0]) / 2e-6 for e in step])
    np.testing.assert_allclose(cross_entropy(v, h, y)[1], slope, rtol=0, atol=1e-8)


def test_one_naive_client_is_pytorchs_sgd() -> None:
    f = world(Client(batch="full", epochs=4), sampling=Uniform(1))
    (only,) = f.sampling.clients(0, f.data.sizes, f.seed)
    w = run(f, 1, "fedavg", {}, decay=1.0, server_lr=1.0, **CLIENT)["w"]
    optimiser = torch.optim.SGD(f.model.parameters(), **CLIENT)
    own = torch.from_numpy(f.data.clients[only])
    for _ in range(4):
        optimiser.zero_grad()
        f.loss(f.model(f.data.train.x[own]), f.data.train.y[own]).mean().backward()
        optimiser.step()
    np.testing.assert_allclose(w, f.layout.flatten(f.model).numpy(), rtol=0, atol=1e-14)


def test_the_anchor_methods_adam_is_pytorchs() -> None:
    """A client of one sample whose SGD stands still: only the calibration moves it."""
    f = world(Client(batch=5, epochs=6), sampling=Uniform(1))
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


@pytest.mark.parametrize("kind, options, other, others", LIMITS)
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
    np.testing.assert_allclose(a["mine/c"], b["mine/c"], rtol=0, atol=1e-13)


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


# Laws of naive memories


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
        (own,) = (name for name in end if name.startswith("mine/"))
        np.testing.assert_allclose(end[server], end[own].mean(0), rtol=0, atol=1e-14)
        assert np.abs(end[server]).max() > 1e-3


def test_naive_fedcm_and_mimelite_with_one_full_batch_step_of_all_are_the_damped_heavy_ball() -> None:
    everyone, alpha, rounds = world(Client(batch="full"), sampling=Uniform(len(SIZES))), 0.3, 6
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
    f = world(Client(batch="full"))
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
    ways = (a["mine/g"] - b["mine/g"])[ids] / alpha
    L = -b["mine/g"] / alpha
    np.testing.assert_allclose(b["w"], a["w"] + ways.mean(0) + L.mean(0), rtol=0, atol=1e-13)


def test_naive_adabest_extrapolates_the_clients_average() -> None:
    options: dict[str, Any] = {"mu": 0.05, "beta": 0.6, "variant": "paper"}
    a, b = (run(world(), rounds, "adabest", options, **PLAIN) for rounds in (3, 4))
    np.testing.assert_allclose(b["w"], b["avg"] + 0.6 * (b["avg"] - a["avg"]), rtol=0, atol=1e-14)
    ids = np.setdiff1d(np.arange(len(SIZES)), world().sampling.clients(3, np.array(SIZES), 3))
    assert np.array_equal(a["mine/h"][ids], b["mine/h"][ids])


def test_naive_adabests_code_with_equal_clients_and_full_batches_is_its_paper_with_mu_times_epochs() -> None:
    f = world(Client(batch=6, epochs=3), data=data((6, 6, 6, 6, 6)))
    code = naive("adabest", f=f, mu=0.05, beta=0.6, variant="code")
    paper = naive("adabest", f=f, mu=0.15, beta=0.6, variant="paper")
    same(code, paper)
    np.testing.assert_allclose(0.15 * code["mine/h"], paper["mine/h"], rtol=0, atol=1e-13)


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
    f = world(Client(batch="full"))
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
        np.testing.assert_allclose(b["m"], 0.7 * a["m"] + 0.3 * b["mine/c"][ids].mean(0), rtol=0, atol=1e-14)


def test_naive_saw_tooths_sum_has_its_closed_form() -> None:
    f, rho = world(), 0.3
    method = KINDS["fedswa"](net(f), f, np.zeros(43), {"rho": rho, "alpha": 1.0})
    for K in (1, 2, 7, 12):
        total = sum(method.factor(k, K) for k in range(K))
        assert total == pytest.approx((K * (1 + rho) + 1 - rho) / 2, abs=1e-13)


def test_naive_anchors_of_a_model_at_rest_go_to_the_mean_features_of_their_class() -> None:
    f, epochs = world(Client(batch=100, epochs=3), sampling=Uniform(len(SIZES))), 3
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


# The library

MO: dict[str, Any] = {"rho": 0.2, "alpha": 1.3, "gamma": 0.3}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedavg", SAMPLES),
    ("fedavg", UNIFORM),
    ("fedprox", {"mu": 0.3}),
    ("fedprox", {"mu": 0.3} | UNIFORM),
    ("scaffold", {"option": "I"}),
    ("scaffold", {"option": "II"}),
    ("scaffold", {"option": "II"} | SAMPLES),
    ("feddyn", {"alpha": 0.1}),
    ("feddyn", {"alpha": 0.1} | SAMPLES),
    ("adabest", ADABEST),
    ("adabest", ADABEST | SAMPLES),
    ("adabest", ADABEST | {"variant": "code"}),
    ("fedcm", {"alpha": 0.3}),
    ("fedcm", {"alpha": 0.3} | SAMPLES),
    ("fedacg", {"lam": 0.85, "beta": 0.1}),
    ("fedacg", {"lam": 0.85, "beta": 0.1} | SAMPLES),
    ("mime", {"beta": 0.6, "damped": True}),
    ("mime", {"beta": 0.6, "damped": False} | SAMPLES),
    ("mime", {"beta": 0.0, "damped": True}),
    ("mimelite", {"beta": 0.6, "damped": True}),
    ("mimelite", {"beta": 0.6, "damped": False} | SAMPLES),
    ("fedsam", {"rho": 0.2}),
    ("fedsam", {"rho": 0.2} | UNIFORM),
    ("fedasam", {"rho": 0.2, "eta": 0.1}),
    ("mofedsam", {"alpha": 0.3, "rho": 0.2}),
    ("fedlesam", {"rho": 0.5}),
    ("fedlesam", {"rho": 0.5} | SAMPLES),
    ("fedfa", FA),
    ("fedfa", FA | {"calibration": 0.0}),
    ("fedfa", FA | {"anchors_from": 1, "calibrate_from": 2}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3} | SAMPLES),
    ("fedmoswa", MO | {"option": "I"}),
    ("fedmoswa", MO | {"option": "II"}),
    ("fedmoswa", MO | {"option": "II"} | SAMPLES),
    ("ewc", {"mu": 2.0}),
    ("ewc", {"mu": 2.0} | UNIFORM),
]
AGGREGATED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("fedavg", {}, "fednova", {"tau": "coefficients"}),
    ("fedavg", {}, "fednova", {"tau": "steps"}),
    ("fedavg", UNIFORM, "fednova", {"tau": "coefficients"}),
    ("fedprox", {"mu": 0.3}, "fednova", {"tau": "coefficients"}),
    ("fedprox", {"mu": 0.3}, "fednova", {"tau": "steps"}),
    ("fedavg", {}, "fedgma", {"threshold": 0.7, "mask": "soft"}),
    ("fedavg", {}, "fedgma", {"threshold": 0.7, "mask": "hard"}),
    ("fedprox", {"mu": 0.3} | UNIFORM, "fedgma", {"threshold": 0.5, "mask": "soft"}),
    ("fedacg", {"lam": 0.85, "beta": 0.1}, "fednova", {"tau": "coefficients"}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3}, "fednova", {"tau": "coefficients"}),
    ("scaffold", {"option": "II"}, "fedgma", {"threshold": 0.7, "mask": "soft"}),
    ("feddyn", {"alpha": 0.1} | SAMPLES, "fednova", {"tau": "coefficients"}),
    ("feddyn", {"alpha": 0.1}, "fedgma", {"threshold": 0.7, "mask": "soft"}),
    ("feddyn", {"alpha": 0.1}, "fednova", {"tau": "steps"}),
]


def compare(f: Federation, kind: str, options: dict[str, Any], momentum: float = 0.0) -> None:
    """The model and all vectors that the naive account names; what is not a number there is not compared."""
    expected = run(f, 5, kind, options, server_momentum=momentum, **TRAINING)
    with f:
        state = f.start()
        for _ in range(5):
            state, _ = f.round(state)
    got = {"w": state.w} | state.shared | {f"mine/{name}": rows for name, rows in state.mine.items()}
    for name, value in expected.items():
        known = np.isfinite(value)
        np.testing.assert_allclose(got[name].numpy()[known], value[known], rtol=0, atol=1e-10, err_msg=name)


def trained(method: Any, engine: str, **settings: Any) -> Federation:
    client = Client(batch=5, epochs=3, schedule=Exponential(0.9), **CLIENT)
    return world(client, method=method, engine=ENGINES[engine], **{"server": SGD(lr=0.7)} | settings)


def name_of(value: Any) -> str:
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind, options", CASES, ids=name_of)
def test_every_method_equals_the_naive_account(kind: str, options: dict[str, Any], engine: str) -> None:
    compare(trained(METHODS[kind](**options), engine), kind, options)


@pytest.mark.parametrize("kind", ["feddyn", "adabest", "fedacg", "fedmoswa"])
def test_methods_that_change_the_update_equal_the_naive_account_with_server_momentum(kind: str) -> None:
    options = next(options for name, options in CASES if name == kind)
    server = SGD(lr=0.7, momentum=0.5)
    compare(trained(METHODS[kind](**options), "sequential", server=server), kind, options, momentum=0.5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind, options, rule, settings", AGGREGATED, ids=name_of)
def test_every_aggregation_equals_the_naive_account(
    kind: str, options: dict[str, Any], rule: str, settings: dict[str, Any], engine: str
) -> None:
    f = trained(METHODS[kind](**options), engine, aggregation=AGGREGATIONS[rule](**settings))
    compare(f, kind, options | settings | {"aggregation": rule})


def test_every_method_and_aggregation_of_the_library_has_a_naive_account() -> None:
    assert set(METHODS) == {kind for kind, _ in CASES} == set(KINDS)
    assert set(AGGREGATIONS) == {"mean"} | {rule for _, _, rule, _ in AGGREGATED}
