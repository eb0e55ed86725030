"""Every method against the identities of its paper, and against a naive NumPy account of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from worlds import ENGINES, SIZES, after, federation, quadratic_federation

from fedsash.federation import Federation
from fedsash.local import Client
from fedsash.methods import METHODS, FedAvg, FedProx, Method, Scaffold
from fedsash.sampling import Uniform
from fedsash.servers import SGD

EQUAL = dict(a=[1.0, 3.0], b=[0.0, 1.2])
"""Two quadratics whose sum is least at (1*0 + 3*1.2) / 4 = 0.9."""


def sampled(f: Federation, round: int) -> np.ndarray:
    return f.sampling.clients(round, f.data.sizes, f.seed)


def test_fedavg_with_one_full_batch_step_of_all_clients_is_gradient_descent() -> None:
    f = federation(client=Client(lr=0.3, batch="full"), sampling=Uniform(len(SIZES)))
    w = after(f, 3).w
    module = f.model
    f.layout.load(module, f.start().w)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3)
    for _ in range(3):
        optimiser.zero_grad()
        f.loss(module(f.data.train.x), f.data.train.y).mean().backward()
        optimiser.step()
    torch.testing.assert_close(w, f.layout.flatten(module), rtol=0, atol=1e-14)


@pytest.mark.parametrize("momentum, weight_decay, clip", [(0.0, 0.0, None), (0.9, 0.01, None), (0.5, 0.1, 0.3)])
def test_one_client_is_plain_sgd_as_pytorch_has_it(momentum: float, weight_decay: float, clip: float | None) -> None:
    client = Client(lr=0.1, batch="full", steps=5, momentum=momentum, weight_decay=weight_decay, clip=clip)
    f = federation(client=client, sampling=Uniform(1))
    only = int(sampled(f, 0)[0])
    w = after(f, 1).w
    module = f.model
    f.layout.load(module, f.start().w)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    own = torch.from_numpy(f.data.clients[only])
    for _ in range(5):
        optimiser.zero_grad()
        f.loss(module(f.data.train.x[own]), f.data.train.y[own]).mean().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimiser.step()
    tolerance = 1e-6 if clip else 1e-14  # PyTorch adds 1e-6 to the norm before it divides by it
    torch.testing.assert_close(w, f.layout.flatten(module), rtol=0, atol=tolerance)


def test_clients_with_the_same_data_are_one_client() -> None:
    one = quadratic_federation([2.0], [1.0])
    many = quadratic_federation([2.0] * 4, [1.0] * 4)
    torch.testing.assert_close(after(one, 5).w, after(many, 5).w, rtol=0, atol=1e-15)


def test_fedavg_stops_beside_the_optimum_and_scaffold_reaches_it() -> None:
    eta, steps, (a, b) = 0.1, 5, (np.array(EQUAL["a"]), np.array(EQUAL["b"]))
    pull = 1 - (1 - eta * a) ** steps
    fixed = (pull * b).sum() / pull.sum()
    stuck = after(quadratic_federation(**EQUAL, client=Client(lr=eta, batch="full", steps=steps)), 300).w
    assert float(stuck) == pytest.approx(fixed, abs=1e-12)
    assert abs(fixed - 0.9) > 0.05
    for option in ("I", "II"):
        method = Scaffold(option)
        reached = after(
            quadratic_federation(**EQUAL, method=method, client=Client(lr=eta, batch="full", steps=steps)), 300
        )
        assert float(reached.w) == pytest.approx(0.9, abs=1e-10)


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0])
def test_fedprox_on_a_quadratic_follows_its_closed_form(mu: float) -> None:
    a, b, eta, steps, start = 2.0, 1.5, 0.1, 7, -0.4
    f = quadratic_federation([a], [b], start, method=FedProx(mu), client=Client(lr=eta, batch="full", steps=steps))
    target = (a * b + mu * start) / (a + mu)
    expected = target + (1 - eta * (a + mu)) ** steps * (start - target)
    assert float(after(f, 1).w) == pytest.approx(expected, abs=1e-14)


def test_fedprox_without_tether_and_with_one_step_is_fedavg() -> None:
    plain = after(federation(), 4).w
    torch.testing.assert_close(after(federation(method=FedProx(0.0)), 4).w, plain, rtol=0, atol=1e-15)
    one = Client(lr=0.1, batch="full")
    torch.testing.assert_close(
        after(federation(method=FedProx(5.0), client=one), 4).w, after(federation(client=one), 4).w, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("count", [1, 4, 6])
def test_scaffolds_c_is_the_mean_of_all_client_variates_after_every_round(option: Any, count: int) -> None:
    f = federation(method=Scaffold(option), sampling=Uniform(count))
    state = f.start()
    for _ in range(6):
        before = {name: rows.clone() for name, rows in state.mine.items()}
        absent = np.setdiff1d(np.arange(len(SIZES)), sampled(f, state.round))
        state, _ = f.round(state)
        torch.testing.assert_close(state.shared["c"], state.mine["c"].mean(0), rtol=0, atol=1e-14)
        assert torch.equal(state.mine["c"][absent], before["c"][absent])
    assert float(state.shared["c"].norm()) > 0
    f.close()


def test_scaffold_with_one_full_batch_step_of_all_clients_is_gradient_descent_on_their_mean() -> None:
    whole = Client(lr=0.2, batch="full")
    everyone = Uniform(len(SIZES))
    plain = after(federation(method=FedAvg(weighting="uniform"), client=whole, sampling=everyone), 5).w
    for option in ("I", "II"):
        w = after(federation(method=Scaffold(option), client=whole, sampling=everyone), 5).w
        torch.testing.assert_close(w, plain, rtol=0, atol=1e-13)


def test_both_options_of_scaffold_agree_on_the_variate_of_a_single_full_batch_step() -> None:
    states = [after(federation(method=Scaffold(o), client=Client(lr=0.2, batch="full")), 3) for o in ("I", "II")]
    torch.testing.assert_close(states[0].mine["c"], states[1].mine["c"], rtol=0, atol=1e-13)


def test_scaffolds_first_round_is_uniform_fedavg() -> None:
    torch.testing.assert_close(
        after(federation(method=Scaffold()), 1).w,
        after(federation(method=FedAvg(weighting="uniform")), 1).w,
        rtol=0,
        atol=1e-15,
    )


def test_option_two_is_the_mean_gradient_along_the_way_whatever_c_was() -> None:
    """(x - y) / (K eta) is the mean corrected gradient, so c_i+ is the mean of the raw ones, sign included."""
    seen: list[torch.Tensor] = []

    class Watched(Scaffold):
        def direction(self, step: Any) -> torch.Tensor:
            seen.append(step.grad(step.w)[0])
            return super().direction(step)

    f = federation(method=Watched(), sampling=Uniform(1))
    f.prepare()
    state = f.start()
    for _ in range(4):
        seen.clear()
        client = int(sampled(f, state.round)[0])
        state, _ = f.round(state)
        torch.testing.assert_close(state.mine["c"][client], torch.stack(seen).mean(0), rtol=0, atol=1e-13)


def naive(f: Federation, rounds: int, kind: str, mu: float, server_lr: float) -> np.ndarray:
    """FedAvg, FedProx and SCAFFOLD written out in NumPy for a linear softmax model, line by line from the papers."""
    x_all, y_all = f.data.train.x.numpy(), f.data.train.y.numpy()
    w = f.start().w.numpy().copy()
    shape = (3, 4)
    n = len(f.data.clients)
    c, own = np.zeros_like(w), np.zeros((n, len(w)))

    def gradient(w: np.ndarray, index: np.ndarray) -> np.ndarray:
        weight, bias = w[:12].reshape(shape), w[12:]
        z = x_all[index] @ weight.T + bias
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(index)), y_all[index]] -= 1
        p /= len(index)
        return np.concatenate([(p.T @ x_all[index]).ravel(), p.sum(0)])

    batches = f.client.batches(f.data.clients, f.seed, torch.empty(0, dtype=torch.float64))
    for t in range(rounds):
        ids = sampled(f, t)
        deltas, changes, sizes = [], [], []
        eta = f.client.schedule.lr(t, f.client.lr)
        for i in ids:
            plan = batches.plan(t, np.array([i]), f.client.epochs)
            y, buffer = w.copy(), np.zeros_like(w)
            for k in range(int(plan.steps[0])):
                g = gradient(y, plan.index[k, 0, : plan.count[k, 0]])
                if kind == "fedprox":
                    g = g + mu * (y - w)
                if kind == "scaffold":
                    g = g - own[i] + c
                g = g + f.client.weight_decay * y
                buffer = f.client.momentum * buffer + g
                y = y - eta * buffer
            if kind == "scaffold":
                new = own[i] - c + (w - y) / (int(plan.steps[0]) * eta)
                changes.append(new - own[i])
                own[i] = new
            deltas.append(y - w)
            sizes.append(len(f.data.clients[i]))
        p = np.full(len(ids), 1 / len(ids)) if kind == "scaffold" else np.array(sizes) / sum(sizes)
        w = w + server_lr * sum(q * d for q, d in zip(p, deltas, strict=True))
        if kind == "scaffold":
            c = c + sum(changes) / n
    return w


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind, method", [("fedavg", FedAvg()), ("fedprox", FedProx(0.3)), ("scaffold", Scaffold())])
def test_methods_equal_a_naive_account_in_numpy(kind: str, method: Method, engine: str) -> None:
    from fedsash.schedules import Exponential

    torch.manual_seed(1)
    client = Client(lr=0.1, batch=5, epochs=3, momentum=0.8, weight_decay=0.02, schedule=Exponential(0.9))
    f = federation(
        model=torch.nn.Linear(4, 3).double(), method=method, client=client, server=SGD(lr=0.7), engine=ENGINES[engine]
    )
    np.testing.assert_allclose(after(f, 5).w.numpy(), naive(f, 5, kind, 0.3, 0.7), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_is_in_one_line_and_where_it_comes_from(name: str) -> None:
    first = (METHODS[name].__doc__ or "").strip().splitlines()[0]
    assert first.endswith(".") and "20" in first
