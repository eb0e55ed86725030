"""Two ways to the gradients of a block of clients: one client at a time, or all of them stacked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..layout import Layout
from ..local import Batch
from .dropout import SeededDropout, seed_torch

Loss = Callable[[Any, Tensor], Tensor]
"""`loss(output, y)`: one number a sample, `[B]`."""

MemoryFormat = Literal["contiguous", "channels_last"]


class OneByOne:
    """The gradient of a single client, C = 1, by ordinary autograd on a module whose parameters are views of `w`."""

    one = True

    def __init__(self, module: nn.Module, loss: Loss, memory_format: MemoryFormat, dropout: bool) -> None:
        self._module = copy.deepcopy(module).train()
        self._layout = Layout(module)
        self._parameters = self._layout.parameters(self._module)
        self._loss, self.dropout = loss, dropout
        self._format = torch.channels_last if memory_format == "channels_last" else torch.contiguous_format
        self._bound: Tensor | None = None

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        return torch.cat([g.reshape(-1) for g in self.pieces(w, batch)]).unsqueeze(0)

    def cut(self, w: Tensor) -> Sequence[Tensor]:
        return list(self._layout.views(w[0]).values())

    def pieces(self, w: Tensor, batch: Batch) -> Sequence[Tensor]:
        if self._bound is not w:
            self._layout.bind(self._module, w[0])
            self._bound = w
        x = batch.x[0]
        if x.dim() == 4:  # a copy, since with one channel `contiguous` keeps strides that slow the kernels down
            x = x.clone(memory_format=self._format)
        if self.dropout:
            seed_torch(batch.keys[0])
        with torch.enable_grad(), SeededDropout(batch.keys[0]) if self.dropout else nullcontext():
            loss = self._loss(self._module(x), batch.y[0]) @ batch.weights[0]
        return torch.autograd.grad(loss, self._parameters, materialize_grads=True)


class Stacked:
    """The gradients of all clients of a block at once, vectorised over the stacked parameters `[C, D]`."""

    one = False

    def __init__(self, module: nn.Module, loss: Loss, memory_format: MemoryFormat, dropout: bool) -> None:
        self._module = copy.deepcopy(module).train()
        self._layout = Layout(module)
        self._loss, self._contiguous, self.dropout = loss, memory_format == "contiguous", dropout
        self._gradient = vmap(grad(self._client_loss))

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        x = batch.x.contiguous() if self._contiguous else batch.x
        gradient: Tensor = self._gradient(w, x, batch.y, batch.weights, batch.keys)
        return gradient

    def cut(self, w: Tensor) -> Sequence[Tensor]:
        return (w,)

    def pieces(self, w: Tensor, batch: Batch) -> Sequence[Tensor]:
        return (self(w, batch),)

    def _client_loss(self, w: Tensor, x: Tensor, y: Tensor, weights: Tensor, key: Tensor) -> Tensor:
        with SeededDropout(key) if self.dropout else nullcontext():
            output = functional_call(self._module, self._layout.views(w), (x,))
        return self._loss(output, y) @ weights
