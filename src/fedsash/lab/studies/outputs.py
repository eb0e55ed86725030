"""The outputs and features of models for samples, and how alike models are: CKA of features, distances of vectors."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...data.encoded import split
from ...data.inputs import call
from ...data.samples import Samples
from ...data.transform import PLAIN, Transform
from ...settings.errors import check
from ...tasks import Task
from ...vector.layout import Layout

BATCH = 500
"""The number of samples that pass through a model at once."""


def outputs(
    module: nn.Module,
    w: Tensor,
    samples: Samples,
    transform: Transform = PLAIN,
    task: Task | None = None,
    layout: Layout | None = None,
) -> Tensor:
    """The outputs `[..., n, c]` of the models `w` `[..., D]` for n samples, without dropout.

    With a `task` they are what counts for it of the outputs, which may be a tuple or a dict. `layout` is that of `w`,
    for example of a federation; None means `Layout(module)`.
    """
    copied = copy.deepcopy(module).eval()
    return _outputs(copied, copied, layout or Layout(module), w, samples, transform, task)


@torch.no_grad()
def _outputs(
    called: nn.Module,
    module: nn.Module,
    layout: Layout,
    w: Tensor,
    samples: Samples,
    transform: Transform,
    task: Task | None = None,
) -> Tensor:
    """What `called` returns for n samples where `module`, a part of it, has the values of the models `w` `[..., D]`."""
    answers = []
    for model in w.reshape(-1, layout.size):
        layout.bind(module, model)
        batches = []
        start = 0
        for x in split(samples.x, BATCH):
            batch = call(called, transform.inputs(x, layout.dtype))
            if task is not None:
                batch = task.answer(batch, samples.y[start : start + BATCH])
            batches.append(batch)
            start += BATCH
        answers.append(torch.cat(batches))
    return torch.stack(answers).view(*w.shape[:-1], *answers[0].shape)


def features(
    module: nn.Module,
    w: Tensor,
    samples: Samples,
    transform: Transform = PLAIN,
    layout: Layout | None = None,
) -> Tensor:
    """The inputs `[..., n, d]` of the last linear layer of the models `w` `[..., D]`.

    `layout` is as in `outputs`. Raises `ValueError` if no linear layer trains.
    """
    extractor = _Extractor(module).eval()
    return _outputs(extractor, extractor.module, layout or Layout(module), w, samples, transform)


class _Extractor(nn.Module):
    """A copy of a module that returns the input of its classifier."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        self.entered = torch.empty(0)
        self.module.get_submodule(Layout(module).classifier).register_forward_pre_hook(self._keep)

    def forward(self, x: Tensor) -> Tensor:
        self.module(x)
        return self.entered

    def _keep(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.entered = inputs[0]


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
    rows = []
    for one in x:
        rows.append(torch.stack([_inner(one, other) for other in x]))
    inner = torch.stack(rows)
    norms = inner.diagonal().sqrt()
    return inner / (norms[:, None] * norms)


def _centred(x: Tensor) -> Tensor:
    """`x` `[..., n, d]` minus the mean over n; exactly 0, and no rounding error, where all n numbers are the same."""
    same = x.amax(-2, keepdim=True) == x.amin(-2, keepdim=True)
    return (x - x.mean(-2, keepdim=True)).masked_fill(same, 0.0)


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """||Y^T X||^2, which is the inner product of the Gram matrices X X^T and Y Y^T."""
    return (y.mT @ x).square().sum()
