"""What is learned: scikit-learn's handwritten digits, with a small network."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def samples(which: slice) -> tuple[Tensor, Tensor]:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))[which]
    return torch.tensor(digits.data[order] / 16, dtype=torch.float32), torch.tensor(digits.target[order])


def shard(node: int, nodes: int) -> tuple[Tensor, Tensor]:
    """A node's samples: few classes each, since they are sorted by label before they are dealt out."""
    x, y = samples(slice(0, 1400))
    mine = torch.argsort(y, stable=True).tensor_split(nodes)[node]
    return x[mine], y[mine]


def train(net: nn.Module, x: Tensor, y: Tensor, steps: int = 20) -> float:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
    return loss.item()


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    return (net(x).argmax(1) == y).double().mean().item()
