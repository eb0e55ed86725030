"""The local optimisers are PyTorch's, for one client and for several whose numbers of steps differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash.client import OPTIMISERS, SGD, Adagrad, Adam, AdamW, LocalTraining, Optimiser, RMSprop
from fedsash.client.optimisers import _share
from fedsash.vector.arrays import Vectors
from support.by_default import some

share, decay, epsilon = st.floats(0, 0.99), st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([1e-10, 1e-8, 1e-3])
CHOICES: dict[str, st.SearchStrategy[Optimiser]] = {
    "sgd": st.builds(SGD, share, share, weight_decay=decay),
    "nesterov": st.builds(SGD, st.floats(0.1, 0.99), nesterov=st.just(True), weight_decay=decay),
    "adam": st.builds(Adam, share, share, epsilon, decay),
    "adamw": st.builds(AdamW, share, share, epsilon, decay),
    "adagrad": st.builds(Adagrad, share, st.sampled_from([0.0, 0.5]), epsilon, decay),
    "rmsprop": st.builds(RMSprop, st.floats(0.5, 0.99), epsilon, share, st.booleans(), decay),
}


def torchs(optimiser: Optimiser, parameters: Any, lr: float) -> torch.optim.Optimizer:
    """PyTorch's optimiser of the same settings."""
    o: Any = optimiser
    every: dict[str, Any] = {"params": parameters, "lr": lr, "weight_decay": o.weight_decay}
    match o:
        case SGD():
            return torch.optim.SGD(momentum=o.momentum, dampening=o.dampening, nesterov=o.nesterov, **every)
        case Adam():
            kind = torch.optim.AdamW if isinstance(o, AdamW) else torch.optim.Adam
            return kind(betas=(o.beta1, o.beta2), eps=o.epsilon, **every)
        case Adagrad():
            initial = o.initial
            return torch.optim.Adagrad(lr_decay=o.lr_decay, initial_accumulator_value=initial, eps=o.epsilon, **every)
        case RMSprop():
            return torch.optim.RMSprop(alpha=o.alpha, eps=o.epsilon, momentum=o.momentum, centered=o.centered, **every)
    raise AssertionError(o)


def alone(optimiser: Optimiser, w: Tensor, directions: Tensor, lr: float) -> Tensor:
    """The model `[D]` after PyTorch's steps along `directions` `[K, D]`."""
    parameter = torch.nn.Parameter(w.clone())
    step = torchs(optimiser, [parameter], lr)
    for g in directions:
        parameter.grad = g
        step.step()
    return parameter.detach()


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", some(CHOICES, "nesterov", "adamw", "rmsprop"))
@settings(max_examples=20)
@given(data=st.data(), steps=st.lists(st.integers(1, 7), min_size=1, max_size=4), lr=st.floats(0, 1))
def test_stacked_clients_of_unequal_steps_are_pytorchs_optimiser_on_each(
    name: str, data: st.DataObject, steps: list[int], lr: float
) -> None:
    optimiser = data.draw(CHOICES[name])
    most, clients = max(steps), len(steps)
    w, directions = normal(clients, 3), normal(most, clients, 3, seed=1)
    mine, moments = w.clone(), optimiser.moments(w)
    for k in range(most):
        rates = torch.tensor([[lr if k < own else 0.0] for own in steps], dtype=torch.float64)
        n = torch.full((clients, 1), float(k + 1), dtype=torch.float64)
        optimiser.advance(mine, moments, directions[k], rates, n if optimiser.counted else 1)
    for c, own in enumerate(steps):
        close(mine[c], alone(optimiser, w[c], directions[:own, c], lr))


@pytest.mark.parametrize("name", CHOICES)
@settings(max_examples=20)
@given(data=st.data(), lr=st.floats(0, 1))
def test_a_single_clients_pieces_are_pytorchs_optimiser(name: str, data: st.DataObject, lr: float) -> None:
    """One client has plain numbers for its rate and its steps, and its vectors may come in parts."""
    optimiser = data.draw(CHOICES[name])
    w, directions = normal(1, 6), normal(5, 1, 6, seed=1)
    mine, moments = w.clone(), optimiser.moments(w)
    for k in range(5):
        for part in (slice(0, 2), slice(2, 6)):
            views = {name: own[0, part] for name, own in moments.items()}
            n = float(k + 1) if optimiser.counted else 1.0
            optimiser.advance(mine[0, part], views, directions[k, 0, part], lr, n)
    close(mine[0], alone(optimiser, w[0], directions[:, 0], lr))


@pytest.mark.parametrize("name", some(CHOICES, "nesterov", "adamw", "rmsprop"))
@given(data=st.data())
def test_an_optimiser_leaves_the_direction_alone_and_keeps_float32(name: str, data: st.DataObject) -> None:
    optimiser = data.draw(CHOICES[name])
    w, g = normal(2, 3).float(), normal(2, 3, seed=1).float()
    moments, given = optimiser.moments(w), g.clone()
    optimiser.advance(w, moments, g, torch.full((2, 1), 0.1), torch.ones(2, 1))
    assert torch.equal(g, given)
    assert {w.dtype, *(own.dtype for own in moments.values())} == {torch.float32}


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.999999])
def test_a_bias_correction_of_stacked_clients_is_exact_in_float32(beta: float) -> None:
    for n in (1, 2, 100, 10_000):
        assert float(_share(beta, torch.tensor(float(n)))) == pytest.approx(_share(beta, n), rel=1e-6)


def test_every_optimiser_is_among_those_with_pytorchs_defaults() -> None:
    assert {type(optimiser()) for optimiser in OPTIMISERS.values()} == {SGD, Adam, AdamW, Adagrad, RMSprop}
    parameter = torch.nn.Parameter(torch.zeros(1))
    for name, kind in OPTIMISERS.items():
        defaults = getattr(torch.optim, kind.__name__)([parameter], lr=0.1).defaults
        assert torchs(kind(), [parameter], 0.1).defaults == defaults, name


def test_centred_rmsprop_never_takes_the_root_of_what_rounding_left_below_zero() -> None:
    """Under a constant direction the second moment becomes the square of the first."""
    optimiser, w = RMSprop(alpha=0.5, centered=True), torch.zeros(1, 50)
    moments: Vectors = optimiser.moments(w)
    for _ in range(200):
        optimiser.advance(w, moments, normal(1, 50).float(), 0.0, 1)
    assert np.isfinite(w.numpy()).all() and not w.any()


@pytest.mark.parametrize(
    "kind, options, message",
    [
        (SGD, {"nesterov": True}, "SGD.nesterov = True: needs a momentum above 0, and a dampening of 0"),
        (SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "SGD.nesterov = True: needs a momentum above 0"),
        (LocalTraining, {"optimiser": "adam"}, "LocalTraining.optimiser = 'adam': must be an Optimiser"),
    ],
)
def test_impossible_settings_are_refused(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        kind(**options)
    assert str(refusal.value).startswith(message)
