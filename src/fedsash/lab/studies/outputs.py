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


@torch.no_grad()
def outputs(
    module: nn.Module, w: Tensor, samples: Samples, transform: Transform = PLAIN, task: Task | None = None
) -> Tensor:
    """The outputs `[..., n, c]` of the models `w` `[..., D]` for n samples, without dropout.

    With a `task` they are what counts for it of the outputs, which may be a tuple or a dict.
    """
    layout, module = Layout(module), copy.deepcopy(module).eval()
    answers = []
    for model in w.reshape(-1, layout.size):
        layout.bind(module, model)
        batches = (transform.inputs(x, layout.dtype) for x in split(samples.x, BATCH))
        found = [call(module, x) for x in batches]
        if task is not None:
            ends = [min(BATCH * i, len(samples)) for i in range(len(found) + 1)]
            found = [task.answer(each, samples.y[i:j]) for each, (i, j) in zip(found, pairwise(ends), strict=True)]
        answers.append(torch.cat(found))
    return torch.stack(answers).view(*w.shape[:-1], *answers[0].shape)


def features(module: nn.Module, w: Tensor, samples: Samples, transform: Transform = PLAIN) -> Tensor:
    """The inputs `[..., n, d]` of the last linear layer of the models `w` `[..., D]`.

    Raises `ValueError` if no linear layer trains.
    """
    return outputs(_Extractor(module), w, samples, transform)


class _Extractor(nn.Module):
    """A copy of a module, with the same layout, that returns the input of its classifier."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        self.training = module.training  # frozen layers are known by it
        self.entered = torch.empty(0)
        self.module.get_submodule(Layout(module).classifier).register_forward_pre_hook(self._keep)

    def forward(self, x: Tensor) -> Tensor:
        self.module(x)
        return self.entered

    def _keep(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.entered = inputs[0]
