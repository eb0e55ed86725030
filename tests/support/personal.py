"""Federations with a personal part, and their central training by plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash.client import LocalTraining, Optimiser
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from support.worlds import data, federation

SIZES = (7, 12, 9, 20, 8, 5)


def three_layers() -> nn.Module:
    """A network with three linear layers of 40, 36 and 15 parameters."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def personal(part: Any = "classifier", **settings: Any) -> Federation:
    """The small federation with a personal part."""
    local = LocalTraining(lr=0.1, batch=5, epochs=2)
    return federation(**{"model": three_layers(), "data": data(SIZES), "personal": part, "local": local} | settings)


def one_client(part: Any, optimiser: Optimiser, **settings: Any) -> Federation:
    """A federation of one client that takes 3 steps with all of its 12 samples in a round."""
    local = LocalTraining(lr=0.1, batch="full", steps=3, optimiser=optimiser, keep_moments=True)
    return personal(part, **{"data": data((12,)), "local": local, "sampling": Uniform(1), "averages": {}} | settings)


def centrally(
    model: nn.Module, world: Federation, groups: list[tuple[list[str], int]], make: Callable[..., Any], rounds: int
) -> nn.Module:
    """The model after rounds in which each group of layers in turn takes its steps, with an optimiser of its own."""
    model = copy.deepcopy(model)
    samples = world.training_data.train
    assert isinstance(samples.x, Tensor)
    layers = [nn.ModuleList(model.get_submodule(name) for name in names) for names, _ in groups]
    optimisers = [make(own.parameters(), lr=0.1) for own in layers]
    for _ in range(rounds):
        for (_, steps), optimiser in zip(groups, optimisers, strict=True):
            for _ in range(steps):
                model.zero_grad()
                F.cross_entropy(model(samples.x), samples.y).backward()
                optimiser.step()
    return model
