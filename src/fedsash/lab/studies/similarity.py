"""The similarity of models: centred kernel alignment (CKA) of their features, distances of their vectors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...basics.layout import Layout
from ...data.samples import Samples
from ...data.transform import PLAIN, Transform
from ...settings.errors import check
from .outputs import features


class Spread(NamedTuple):
    """The mean and the largest Euclidean distance of some models from another model."""

    mean: float
    largest: float


def spread(w: Tensor, centre: Tensor) -> Spread:
    """The distances of the models `w` `[N, D]` from `centre` `[D]`, for example of clients from the global model."""
    distances = torch.stack([torch.linalg.vector_norm(model - centre) for model in w])
    return Spread(float(distances.mean()), float(distances.max()))


def linear_cka(x: Tensor, y: Tensor) -> Tensor:
    """The linear CKA of two models' outputs `x` `[n, d1]` and `y` `[n, d2]` for the same n inputs, a number in [0, 1].

        CKA = ||Y^T X||^2 / (||X^T X|| * ||Y^T Y||),    columns centred, Frobenius norms (Kornblith et al. 2019)

    It does not change if the features are rotated (any orthogonal map), scaled by a common factor, or shifted. It does
    change under a general invertible map. It is NaN if one model gives the same output for all inputs. Raises
    `ValueError` if the numbers of inputs differ.
    """
    check(x.dim() == y.dim() == 2 and len(x) == len(y), "linear_cka: y", tuple(y.shape), f"x is {list(x.shape)}")
    x = _centred(x)
    y = _centred(y)
    return _inner(x, y) / (_inner(x, x) * _inner(y, y)).sqrt()


def cka(
    module: nn.Module,
    w: Tensor,
    samples: Samples,
    transform: Transform = PLAIN,
    layout: Layout | None = None,
) -> Tensor:
    """The linear CKA `[N, N]` of all pairs of the models `w` `[N, D]`, from their features of the samples.

    The features are the inputs of the last linear layer. Each position of a sequence counts as an input. `layout` is as
    in `outputs`.
    """
    return pairwise_cka(features(module, w, samples, transform, layout).flatten(1, -2))


def pairwise_cka(x: Tensor) -> Tensor:
    """The linear CKA `[N, N]` of all pairs of N models' outputs `x` `[N, n, d]` for the same n inputs."""
    x = _centred(x)
    inner = torch.stack([torch.stack([_inner(one, other) for other in x]) for one in x])
    norms = inner.diagonal().sqrt()
    return inner / (norms[:, None] * norms)


def _centred(x: Tensor) -> Tensor:
    """`x` `[..., n, d]` minus the mean over n; exactly 0, and no rounding error, where all n numbers are the same."""
    same = x.amax(-2, keepdim=True) == x.amin(-2, keepdim=True)
    return (x - x.mean(-2, keepdim=True)).masked_fill(same, 0.0)


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """||Y^T X||^2, which is the inner product of the Gram matrices X X^T and Y Y^T."""
    return (y.mT @ x).square().sum()
