"""The outputs of models for samples, and the features before the last linear layer."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from ...basics.layout import Layout
from ...data.encoded import split
from ...data.inputs import call
from ...data.samples import Samples
from ...data.transform import PLAIN, Transform
from ...tasks import Task

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
    own = copy.deepcopy(module).eval()
    return _outputs(own, own, layout or Layout(module), w, samples, transform, task)


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
        batches = (transform.inputs(x, layout.dtype) for x in split(samples.x, BATCH))
        found = [call(called, x) for x in batches]
        if task is not None:
            ends = [min(BATCH * i, len(samples)) for i in range(len(found) + 1)]
            found = [task.answer(each, samples.y[i:j]) for each, (i, j) in zip(found, pairwise(ends), strict=True)]
        answers.append(torch.cat(found))
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
