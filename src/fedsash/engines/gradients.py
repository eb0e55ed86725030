"""Two ways to compute the gradients of a block of clients: one client at a time, or all of them stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..client import Batch
from ..data.inputs import ModelInput, arguments, call, each
from ..methods import Method
from ..tasks import Loss
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from ..vector.norms import for_training, mixes_samples
from ..vector.private_torch import in_type, point
from ..vector.randomness import seed_torch
from .batch_norm import RealSamples
from .dropout import SeededDropout

MemoryFormat = Literal["contiguous", "channels_last"]
Precision = Literal["full", "bfloat16"]


class Objective:
    """One client's loss over a batch, plus the method's `objective` of the features.

    `features` are the inputs of the classifier in the last forward pass, `[B, d]`. They are kept only if the method has
    an objective. In bfloat16 only the model computes; its answer and features are taken back to the type of the
    weights, for the loss.
    """

    def __init__(self, module: nn.Module, loss: Loss, method: Method, precision: Precision) -> None:
        self._loss = loss
        self._method = method
        self._low = precision == "bfloat16"
        self._has_objective = "objective" in method.overridden
        self.features = torch.empty(0)
        if self._has_objective:
            classifier = module.get_submodule(Layout(module).classifier)
            classifier.register_forward_pre_hook(self._keep, with_kwargs=True)

    def __call__(
        self, y: Tensor, weights: Tensor, server_state: Vectors, forward: Callable[..., Any], *inputs: Any
    ) -> Tensor:
        """The loss over a batch with these labels and weights, of which `forward(*inputs)` is the model's output."""
        if self._low:
            with torch.autocast(weights.device.type, torch.bfloat16):
                output = forward(*inputs)
            self.features = self.features.to(weights.dtype)
            output = in_type(output, weights.dtype)
        else:
            output = forward(*inputs)
        # its type may be another one, as with class weights in float64 or a model's own autocast
        loss = self._loss(output, y).to(weights.dtype) @ weights
        if self._has_objective:
            loss = loss + self._method.objective(self.features, y, weights, server_state)
        return loss

    def _keep(self, module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        (self.features,) = (*inputs, *named.values())


class OneByOne:
    """The gradient of a single client (C = 1), by ordinary autograd on a module whose parameters are views of `w`.

    `layout` is that of `w` and of the running `statistics`, which are views, too, so PyTorch itself moves them. A model
    that `changes_input` in place gets a copy each time, since a method may ask for several gradients over a batch.
    """

    one = True

    def __init__(
        self,
        *,
        module: nn.Module,
        layout: Layout,
        loss: Loss,
        method: Method,
        memory_format: MemoryFormat,
        precision: Precision,
        dropout: bool,
        changes_input: bool = False,
    ) -> None:
        self._module = for_training(module)
        self._changes_input = changes_input
        self._layout = layout.between(0, layout.trained)
        self._statistics = layout.between(layout.trained, layout.size)
        self._parameters = self._layout.tensors(self._module)
        self._counted = self._statistics.tensors(self._module)
        self._objective = Objective(self._module, loss, method, precision)
        self.dropout = dropout
        self._format = torch.contiguous_format
        if memory_format == "channels_last":
            self._format = torch.channels_last
        self._views: list[Tensor] = []
        self._viewed: Tensor | None = None
        self._bound: Tensor | None = None
        self._bound_statistics: Tensor | None = None
        self._spare = layout.flatten(module)[layout.trained :].unsqueeze(0)

    def __call__(self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None) -> Tensor:
        pieces = self.pieces(w, batch, server_state, statistics)
        return torch.cat([piece.reshape(-1) for piece in pieces]).unsqueeze(0)

    def views(self, w: Tensor) -> Sequence[Tensor]:
        # They are asked for twice: by the loop, which moves them, and to bind the module to them.
        if self._viewed is not w:
            self._views = list(self._layout.views(w[0]).values())
            self._viewed = w
        return self._views

    def pieces(
        self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None
    ) -> Sequence[Tensor]:
        # The module's parameters and statistics are views of `w` and `statistics`. To bind them takes time, so it is
        # done once for each pair of tensors, which the steps of a round change in place.
        if self._bound is not w:
            for parameter, view in zip(self._parameters, self.views(w), strict=True):
                point(parameter, view)
            self._bound = w
        if self._counted:
            moving = self._spare
            if statistics is not None:
                moving = statistics
            if self._bound_statistics is not moving:
                for tensor, view in zip(self._counted, self._statistics.views(moving[0]).values(), strict=True):
                    point(tensor, view)
                self._bound_statistics = moving
        x = self._only_client(batch.x)
        y = batch.y[0]
        weights = batch.weights[0]
        masks: AbstractContextManager[object] = nullcontext()
        if self.dropout:
            seed_torch(batch.keys[0])
            masks = SeededDropout(batch.keys[0])
        with torch.enable_grad(), masks:
            loss = self._objective(y, weights, server_state, call, self._module, x)
        return torch.autograd.grad(loss, self._parameters, materialize_grads=True)

    def features(self) -> Tensor:
        return self._objective.features.detach().unsqueeze(0)

    def _only_client(self, x: ModelInput) -> Any:
        """The only client's part of a batch. With one channel, `contiguous` would keep strides that are slow."""
        if not isinstance(x, Tensor):
            return {name: self._only_client(one) for name, one in x.items()}
        if x.dim() == 5:
            return x[0].clone(memory_format=self._format)
        if self._changes_input:
            return x[0].clone()
        return x[0]


class Stacked:
    """The gradients of all clients of a block at once, vectorised over the stacked parameters `[C, D]` of `layout`."""

    one = False

    def __init__(
        self,
        *,
        module: nn.Module,
        layout: Layout,
        loss: Loss,
        method: Method,
        memory_format: MemoryFormat,
        precision: Precision,
        dropout: bool,
        changes_input: bool = False,
    ) -> None:
        self._module = for_training(module)
        self._changes_input = changes_input
        self._layout = layout.between(0, layout.trained)
        self._statistics = layout.between(layout.trained, layout.size)
        self._mixes = mixes_samples(module)
        self._objective = Objective(self._module, loss, method, precision)
        self._contiguous = memory_format == "contiguous"
        self.dropout = dropout
        self._gradient = vmap(grad(self._client_loss, has_aux=True), in_dims=(0, 0, 0, 0, 0, 0, None))
        self._features = torch.empty(0)
        self._spare = layout.flatten(module)[layout.trained :]

    def __call__(self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None) -> Tensor:
        x = batch.x
        if self._contiguous:
            x = each(x, torch.Tensor.contiguous)
        if self._changes_input:
            x = each(x, torch.clone)
        before = statistics
        if before is None:
            before = self._spare.expand(len(w), -1)
        gradient: Tensor
        gradient, (self._features, after) = self._gradient(
            w, before, x, batch.y, batch.weights, batch.keys, server_state
        )
        if statistics is not None:  # clients whose batch is padding alone keep theirs
            has_samples = batch.weights.sum(1, keepdim=True) > 0
            statistics.copy_(torch.where(has_samples, after, statistics))
        return gradient

    def views(self, w: Tensor) -> Sequence[Tensor]:
        return (w,)

    def pieces(
        self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None
    ) -> Sequence[Tensor]:
        return (self(w, batch, server_state, statistics),)

    def features(self) -> Tensor:
        return self._features

    def _client_loss(
        self,
        w: Tensor,
        statistics: Tensor,
        x: ModelInput,
        y: Tensor,
        weights: Tensor,
        key: Tensor,
        server_state: Vectors,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The loss of one client, and beside it the classifier's inputs and the statistics after the batch."""
        moved = statistics.clone()
        masks: AbstractContextManager[object] = nullcontext()
        if self.dropout:
            masks = SeededDropout(key)
        real_samples: AbstractContextManager[object] = nullcontext()
        if self._mixes:
            real_samples = RealSamples(weights > 0)
        with masks, real_samples:
            named = self._layout.views(w) | self._statistics.views(moved)
            positional, named_inputs = arguments(x)
            loss = self._objective(
                y, weights, server_state, functional_call, self._module, named, positional, named_inputs
            )
        return loss, (self._objective.features, moved)
