"""How alike models are: centred kernel alignment of their features, distances of their vectors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...basics.errors import check
from ...data.federated import Samples
from ...data.transform import PLAIN, Transform
from .outputs import features


class Spread(NamedTuple):
    """The mean and the largest of some models' Euclidean distances from another one."""

    mean: float
    largest: float


def spread(w: Tensor, centre: Tensor) -> Spread:
    """The distances of the models `w` `[N, D]` from `centre` `[D]`: of clients from the global model, say."""
    distances = torch.stack([torch.linalg.vector_norm(model - centre) for model in w])
    return Spread(float(distances.mean()), float(distances.max()))


def linear_cka(x: Tensor, y: Tensor) -> Tensor:
    """The linear CKA of two models' answers `x` `[n, d1]` and `y` `[n, d2]` to the same n inputs, a number in [0, 1].

        CKA = ||Y^T X||^2 / (||X^T X|| * ||Y^T Y||),    columns centred, Frobenius norms (Kornblith et al. 2019)

    Rotating the features (any orthogonal map), scaling all of them by one factor, or shifting them changes nothing; a
    general invertible map does. It is not a number where one model gives all inputs the same answer. Raises
    `ValueError` if the numbers of inputs differ.
    """
    check(x.dim() == y.dim() == 2 and len(x) == len(y), "linear_cka: y", tuple(y.shape), f"x is {list(x.shape)}")
    x, y = x - x.mean(0), y - y.mean(0)
    return _inner(x, y) / (_inner(x, x) * _inner(y, y)).sqrt()


def cka(module: nn.Module, w: Tensor, samples: Samples, transform: Transform = PLAIN) -> Tensor:
    """The linear CKA `[N, N]` of each two of the models `w` `[N, D]`: how alike their features of the samples are.

    The features are what enters the last linear layer; each position of a sequence counts as an input.
    """
    return pairwise_cka(features(module, w, samples, transform).flatten(1, -2))


def pairwise_cka(x: Tensor) -> Tensor:
    """The linear CKA `[N, N]` of each two of N models' answers `x` `[N, n, d]` to the same n inputs."""
    x = x - x.mean(1, keepdim=True)
    inner = torch.stack([torch.stack([_inner(one, other) for other in x]) for one in x])
    norms = inner.diagonal().sqrt()
    return inner / (norms[:, None] * norms)


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """||Y^T X||^2, which is the inner product of the Gram matrices X X^T and Y Y^T."""
    return (y.mT @ x).square().sum()
