"""Models with BatchNorm, and their central training by plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash.averages import Average
from fedsash.client import SGD, LocalTraining
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from support.worlds import data, federation

FOUR_STEPS = LocalTraining(lr=0.1, batch="full", steps=4, optimiser=SGD(momentum=0.5))
SIZES = (7, 12, 9, 20, 8, 5)
"""Sizes for which no batch of 5 samples has one sample only, over which BatchNorm has no variance."""


def batch_norm_model(**settings: Any) -> nn.Module:
    """A network with a BatchNorm between its two linear layers."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, **settings)
    model = nn.Sequential(nn.Linear(4, 8), norm, nn.Tanh(), nn.Linear(8, 3)).double()
    if norm.affine:
        nn.init.normal_(norm.weight)
    return model


def with_norm(**settings: Any) -> Federation:
    """The small federation, with this model, whose statistics are averaged."""
    local = LocalTraining(lr=0.1, batch=5, epochs=2)
    defaults: dict[str, Any] = {"model": batch_norm_model(), "data": data(SIZES), "buffers": "average", "local": local}
    return federation(**defaults | settings)


def alone(model: nn.Module, averages: dict[str, Average] | None = None, **settings: Any) -> Federation:
    """A federation of one client, with 12 samples in each batch, so that their order changes nothing but rounding."""
    one: dict[str, Any] = {"model": model, "data": data((12,)), "local": FOUR_STEPS, "sampling": Uniform(1)}
    return with_norm(**one | {"averages": averages or {}} | settings)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's optimiser of `FOUR_STEPS`."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5)


def centrally_trained(
    model: nn.Module,
    world: Federation,
    steps: int,
    every: int = 4,
    make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = momentum,
) -> nn.Module:
    """The model after so many steps of PyTorch's optimiser on all samples; it begins anew after `every` steps."""
    model = copy.deepcopy(model)
    x, y = world.training_data.train.x, world.training_data.train.y
    assert isinstance(x, Tensor)
    for step in range(steps):
        if step % every == 0:
            optimiser = make(model.parameters())
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model
