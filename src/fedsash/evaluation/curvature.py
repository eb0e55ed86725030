"""The training loss as a function of the model's vector, its gradient, and products with its Hessian."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..data.encoded import split
from ..data.federated import FederatedData
from ..data.inputs import arguments
from ..data.samples import Samples
from ..settings.errors import check
from ..tasks import Loss
from ..vector.layout import Layout


class Curvature:
    """The mean loss L over `samples` of the federated `data` as a function of the model `w` `[D]`, and its derivatives.

    `layout` is that of `w`, for example of a federation; None means `Layout(module)`. `loss(output, y)` gives one
    number for each sample; None means the loss of the data's task. `batch` samples pass through the model at once.
    Samples are not augmented, and dropout is off. BatchNorm's running statistics are constants: derivatives by them are
    0. Module, samples and vectors must be on one device. `hessian_times` needs a module that is differentiable twice.
    Otherwise PyTorch raises `RuntimeError`, for example for an LSTM on a GPU.
    """

    def __init__(
        self,
        module: nn.Module,
        data: FederatedData,
        samples: Samples,
        loss: Loss | None = None,
        batch: int = 500,
        layout: Layout | None = None,
    ) -> None:
        check(batch >= 1, "Curvature.batch", batch, "must be at least 1")
        self._module = copy.deepcopy(module).eval()
        self._layout = layout or Layout(module)
        self._loss = loss or data.problem.task.loss_of
        self._data = data
        self._samples = samples
        self._batch = batch

    @torch.no_grad()
    def loss(self, w: Tensor) -> float:
        """L(w)."""
        return sum(float(part) for part in self._parts(w))

    def gradient(self, w: Tensor) -> Tensor:
        """The gradient of L at `w`, `[D]`."""
        w = w.detach().requires_grad_()
        g = torch.zeros_like(w)
        for part in self._parts(w):
            g += torch.autograd.grad(part, w)[0]
        return self._trained(g)

    def hessian_times(self, w: Tensor, v: Tensor) -> Tensor:
        """H(w) v, `[D]`: the gradient of `<gradient of L, v>` (Pearlmutter 1994)."""
        w = w.detach().requires_grad_()
        v = self._trained(v.clone())
        product = torch.zeros_like(w)
        # The fused kernels of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            for part in self._parts(w):
                (g,) = torch.autograd.grad(part, w, create_graph=True)
                if g.requires_grad:  # False if the loss is linear in w
                    product += torch.autograd.grad(g @ v, w, materialize_grads=True)[0]
        return self._trained(product)

    def _trained(self, g: Tensor) -> Tensor:
        """`g` `[D]` with 0 in place of derivatives by running statistics, in place."""
        g[self._layout.trained :] = 0
        return g

    def _parts(self, w: Tensor) -> Iterator[Tensor]:
        """The part of L(w) that comes from each batch."""
        tensors = self._layout.views(w)
        constants = self._layout.views(w.detach())
        for name, (start, _) in zip(self._layout.names, self._layout.places, strict=True):
            if start >= self._layout.trained:  # BatchNorm has no derivatives by its statistics
                tensors[name] = constants[name]
        inputs = split(self._samples.x, self._batch)
        labels = torch.split(self._samples.y, self._batch)
        for x, y in zip(inputs, labels, strict=True):
            x = self._data.transform.inputs(x, self._layout.dtype)
            output = functional_call(self._module, tensors, *arguments(x))
            yield self._loss(output, y.clone()).sum() / len(self._samples)
