"""The works' networks in PyTorch, for every peer that trains PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash import models

from .works import Given


class Shakespeare(nn.Module):
    """FedJAX's LSTM with PyTorch's layers: one bias each, so the second stays 0, and forget gates that begin at 1."""

    def __init__(self, classes: int = 90, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, 8)
        self.layers = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in (8, width))
        self.classifier = nn.Linear(width, classes)
        for layer in self.layers:
            nn.init.zeros_(layer.bias_hh_l0).requires_grad_(False)
            nn.init.zeros_(layer.bias_ih_l0).data[width : 2 * width] = 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = torch.tanh(layer(x)[0])
        return self.classifier(x)


def femnist_cnn() -> nn.Module:
    """conv5x5-32, pool, conv5x5-64, pool, fc512, fc62: 1,690,046 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 62)),
    )


MODULES: dict[str, Callable[[], nn.Module]] = {
    "W1": lambda: models.MLP((64,), 10, (64,)),
    "W2": femnist_cnn,
    "W3": lambda: models.fmnist_cnn((1, 28, 28), 10),
    "W4": lambda: models.resnet20_gn((3, 32, 32), 10),
    "W5": femnist_cnn,
    "W6": Shakespeare,
}


def module(given: Given) -> nn.Module:
    """The work's network with its initial parameters."""
    made = MODULES[given.work.name]()
    fill(made, given.weights)
    return made


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that train."""
    return [p for p in module.parameters() if p.requires_grad]


@torch.no_grad()
def fill(module: nn.Module, values: Sequence[Any]) -> None:
    """Put these values into the parameters that train."""
    for p, value in zip(trained(module), values, strict=True):
        p.copy_(torch.as_tensor(value))


def parameters(module: nn.Module) -> Callable[[], list[Any]]:
    """What the clock asks for."""
    return lambda: [p.detach().numpy() for p in trained(module)]


def loss(answers: Tensor, y: Tensor) -> Tensor:
    """The mean cross-entropy, over all positions."""
    return F.cross_entropy(answers.flatten(0, -2), y.flatten())


@torch.no_grad()
def final_loss(given: Given, values: Sequence[Any]) -> float:
    """The mean loss of the model with these parameters over all samples, or every k-th of them if they are many."""
    made = module(given)
    fill(made, values)
    every = slice(None, None, max(1, given.work.samples // 5000))
    batches = zip(*(torch.from_numpy(part[every].copy()).split(500) for part in (given.x, given.y)), strict=True)
    found = [(float(loss(made(x), y)) * len(x), len(x)) for x, y in batches]
    return sum(total for total, _ in found) / sum(n for _, n in found)
