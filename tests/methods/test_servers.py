from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.methods.server_optimisers import SERVERS, FedAdagrad, FedAdam, FedYogi, Server, ServerSGD
from support.by_default import rotated

ALL = [
    ServerSGD(),
    ServerSGD(lr=0.3),
    ServerSGD(lr=0.1, momentum=0.9),
    FedAdagrad(),
    FedAdagrad(beta1=0.5, initial_v=1e-6),
    FedAdam(),
    FedAdam(bias_correction="keras"),
    FedAdam(bias_correction="flower", initial_v=1e-6),
    FedAdam(bias_correction="both"),
    FedYogi(),
    FedYogi(initial_v=1e-6),
]
TINY = 1e-200


def vectors(n: int, d: int = 5, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(n, d, dtype=torch.float64, generator=generator))


def trajectory(server: Server, w: Tensor, deltas: list[Tensor]) -> list[Tensor]:
    state, models = server.init(w), []
    for delta in deltas:
        w, state = server.step(w, delta, state)
        models.append(w)
    return models


def torchs(optimizer: type[torch.optim.Optimizer], w: Tensor, deltas: list[Tensor], **options: Any) -> list[Tensor]:
    """The same trajectory by PyTorch's optimiser, which descends along `-delta`."""
    parameter = torch.nn.Parameter(w.clone())
    step = optimizer([parameter], **options)
    models = []
    for delta in deltas:
        parameter.grad = -delta
        step.step()
        models.append(parameter.detach().clone())
    return models


def assert_same(left: list[Tensor], right: list[Tensor]) -> None:
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_every_server_is_registered() -> None:
    assert set(SERVERS.values()) == {type(server) for server in ALL}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sgd_is_fedavg_bitwise(dtype: torch.dtype) -> None:
    sent, delta = (v.to(dtype) for v in vectors(2))
    w, state = ServerSGD().step(sent, delta, ServerSGD().init(sent))
    assert torch.equal(w, sent + delta) and state == {}


@pytest.mark.parametrize("beta", [0.0, 0.4, 0.9])
def test_fedavgm_has_its_closed_form_for_a_constant_update(beta: float) -> None:
    w, delta = vectors(2)
    total = 0.1 * delta * sum((1 - beta**t) / (1 - beta) for t in range(1, 8))
    assert_same([trajectory(ServerSGD(lr=0.1, momentum=beta), w, [delta] * 7)[-1]], [w + total])


def test_sgd_is_torchs_sgd_on_the_pseudo_gradient() -> None:
    w, *deltas = vectors(7)
    ours = trajectory(ServerSGD(lr=0.3, momentum=0.9), w, deltas)
    assert_same(ours, torchs(torch.optim.SGD, w, deltas, lr=0.3, momentum=0.9))


def test_adagrad_is_torchs_adagrad() -> None:
    w, *deltas = vectors(7)
    ours = trajectory(FedAdagrad(lr=0.3, tau=0.02, initial_v=0.1), w, deltas)
    assert_same(ours, torchs(torch.optim.Adagrad, w, deltas, lr=0.3, eps=0.02, initial_accumulator_value=0.1))


def test_adam_with_keras_correction_is_torchs_adam_where_tau_vanishes() -> None:
    w, *deltas = vectors(7)
    ours = trajectory(FedAdam(lr=0.3, tau=TINY, bias_correction="keras"), w, deltas)
    assert_same(ours, torchs(torch.optim.Adam, w, deltas, lr=0.3, betas=(0.9, 0.99), eps=TINY))


def test_adam_with_both_moments_corrected_is_torchs_adam_with_any_tau() -> None:
    w, *deltas = vectors(7)
    ours = trajectory(FedAdam(lr=0.3, tau=0.1, bias_correction="both"), w, deltas)
    assert_same(ours, torchs(torch.optim.Adam, w, deltas, lr=0.3, betas=(0.9, 0.99), eps=0.1))


@pytest.mark.parametrize("correction", ["none", "keras", "flower", "both"])
def test_adam_under_a_constant_update_moves_as_its_bias_correction_says(correction: Any) -> None:
    """For a constant update m = (1 - b1^n) delta and v = (1 - b2^n) delta^2."""
    w, delta = vectors(2)
    models = [w, *trajectory(FedAdam(lr=0.3, tau=TINY, bias_correction=correction), w, [delta] * 6)]

    def gain(n: int) -> float:
        return (1 - 0.9**n) / sqrt(1 - 0.99**n)

    for n in range(1, 7):
        factor = {"none": gain(n), "keras": 1.0, "both": 1.0, "flower": gain(n) / gain(n + 1)}[correction]
        assert_same([models[n] - models[n - 1]], [0.3 * factor * delta.sign()])


def test_adam_without_memory_moves_by_the_sign() -> None:
    w, *deltas = vectors(4)
    steps = [0.3 * delta.sign() for delta in deltas]
    expected = list(w + torch.stack(steps).cumsum(0))
    assert_same(trajectory(FedAdam(lr=0.3, beta1=0.0, beta2=0.0, tau=TINY), w, deltas), expected)


@pytest.mark.parametrize("server", [FedAdagrad, FedAdam, FedYogi])
def test_a_large_tau_leads_to_fedavg(server: type[FedAdagrad | FedAdam | FedYogi]) -> None:
    w, *deltas = vectors(4)
    tau = 1e9
    adaptive = trajectory(server(lr=tau, beta1=0.0, tau=tau), w, deltas)
    fedavg = trajectory(ServerSGD(), w, deltas)
    largest = sum(delta.abs().max() for delta in deltas)  # and so sqrt(v) <= largest
    assert all((a - b).abs().max() <= largest**2 / tau + 1e-12 for a, b in zip(adaptive, fedavg, strict=True))


@pytest.mark.parametrize("server", [FedAdam, FedYogi])
def test_a_second_moment_kept_at_one_is_fedavg_exactly(server: type[FedAdam | FedYogi]) -> None:
    w, *deltas = vectors(4)
    held = trajectory(server(lr=1.0, beta1=0.0, beta2=1.0, tau=0.0, initial_v=1.0), w, deltas)
    assert all(torch.equal(a, b) for a, b in zip(held, trajectory(ServerSGD(), w, deltas), strict=True))


def test_yogi_and_adam_begin_with_the_same_step() -> None:
    w, *deltas = vectors(4)
    adam, yogi = trajectory(FedAdam(), w, deltas), trajectory(FedYogi(), w, deltas)
    assert torch.equal(adam[0], yogi[0])
    assert not torch.equal(adam[1], yogi[1])


def test_yogis_second_moment_moves_by_a_share_of_the_square_towards_it() -> None:
    w, delta = vectors(2)
    yogi, square = FedYogi(), delta.square()
    for v in (0.1 * square, 10 * square):
        _, state = yogi.step(w, delta, {"m": torch.zeros_like(w), "v": v})
        assert_same([state["v"] - v], [0.01 * square * (square - v).sign()])


@pytest.mark.parametrize("server", [FedAdagrad(initial_v=0.25), FedAdam(initial_v=0.25), FedYogi(initial_v=0.25)])
def test_initial_v_is_the_second_moment_at_the_start(server: Server) -> None:
    w = torch.ones(3, dtype=torch.float64)
    state = server.init(w)
    assert torch.equal(state["v"], torch.full_like(w, 0.25)) and not state["m"].any()


@pytest.mark.parametrize("server", ALL, ids=repr)
def test_a_step_starts_from_what_was_sent_and_from_nothing_else(server: Server) -> None:
    """Clients that receive another model (IMA) shift the new model by the same vector, whatever went before."""
    w, *deltas, shift = vectors(6)
    state = server.init(w)
    for delta in deltas:
        here, after = server.step(w, delta, state)
        there, also = server.step(w + shift, delta, state)
        assert_same([there - here], [shift])
        assert all(torch.equal(after[key], also[key]) for key in after)
        w, state = here, after


@pytest.mark.parametrize("server, dtype", rotated(ALL, [torch.float32, torch.float64]), ids=repr)
def test_a_step_is_pure(server: Server, dtype: torch.dtype) -> None:
    sent, delta, other = (v.to(dtype) for v in vectors(3))
    _, state = server.step(sent, other, server.init(sent))
    given = {"sent": sent, "delta": delta, **state}
    before = {name: tensor.clone() for name, tensor in given.items()}
    w, new = server.step(sent, delta, state)
    assert all(torch.equal(given[name], before[name]) for name in given)
    assert w.dtype == dtype and w.shape == sent.shape
    assert {name: (v.dtype, v.shape) for name, v in new.items()} == {
        name: (v.dtype, v.shape) for name, v in state.items()
    }
    addresses = {tensor.data_ptr() for tensor in given.values()}
    assert not addresses & {w.data_ptr(), *(tensor.data_ptr() for tensor in new.values())}


@pytest.mark.parametrize(
    ("server", "change", "message"),
    [
        (FedAdagrad(), {"tau": 0.0}, r"Adagrad\.tau = 0\.0: must be above 0, or 0 if initial_v is above 0"),
        (
            FedAdam(),
            {"bias_correction": "yes"},
            r"Adam\.bias_correction = 'yes': must be 'none' or 'keras' or 'flower' or 'both'",
        ),
        (FedAdam(bias_correction="both"), {"beta2": 1.0}, r"Adam\.beta2 = 1\.0: must be below 1 to correct the"),
        (FedAdam(bias_correction="keras"), {"beta2": 1.0}, r"Adam\.beta2 = 1\.0: must be below 1 to correct the"),
        (FedAdam(), {"tau": 0.0, "initial_v": 1e-4}, r"Adam\.tau = 0\.0: .* above 0 and beta2 = 1"),
    ],
)
def test_impossible_settings_are_refused(server: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(server, **change)
