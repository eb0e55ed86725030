"""Plain PyTorch training loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedsash.averages import Tracker


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def steps(
    model: nn.Module, count: int, tracker: Tracker | None = None, forward: Callable[..., Any] | None = None
) -> list[dict[str, Tensor]]:
    """A few steps of SGD with momentum on noise, through a wrapper if `forward` is one; the model after each."""
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    dtype = next(model.parameters()).dtype
    models = []
    for _ in range(count):
        x, y = (torch.randn(8, d, generator=generator, dtype=torch.float64).to(dtype) for d in (4, 2))
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss((forward or model)(x), y))
        optimiser.step()
        if tracker:
            tracker.update()
            with tracker.applied(next(iter(tracker.averages))):
                model(x)
        models.append(copy.deepcopy(model.state_dict()))
    return models


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def mean_of(models: list[dict[str, Tensor]], name: str) -> Tensor:
    """The mean of the models' tensors of one name, rounded once to their type."""
    return torch.stack([m[name].double() for m in models]).mean(0).to(models[0][name].dtype)


class ScheduleFree(torch.optim.SGD):
    """Has one model for training, and half of it for evaluations, as schedule-free optimisers have two models."""

    training = True

    def _to(self, training: bool) -> None:
        if self.training != training:
            self.training = training
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.mul_(2.0 if training else 0.5)

    def train(self) -> None:
        self._to(True)

    def eval(self) -> None:
        self._to(False)
