"""BatchNorm over the real samples of a padded batch, so that stacked clients compute what each computes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class RealSamples(TorchFunctionMode):
    """While active, BatchNorm computes its statistics over the samples for which `real` `[B]` is true.

    So does InstanceNorm for its running statistics. Outputs of other samples mean nothing, and neither do the running
    statistics of a batch without a real sample, whose samples then count as real: divided by a variance of nothing they
    would grow from layer to layer. As in PyTorch, running variances are unbiased, and statistics of 16-bit inputs are
    computed in 32 bits.

    Raises `RuntimeError` if the first dimension of an input is not that of the batch.
    """

    def __init__(self, real: Tensor) -> None:
        super().__init__()
        self._real = real | ~real.any()

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        if func is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func is F.instance_norm:
            return self._instance_norm(*args, **kwargs)
        return func(*args, **kwargs)

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        dtype = input.dtype
        input = _wide(input)
        real = self._share(input)
        shape = (-1, *[1] * (input.dim() - 2))
        dims = [0, *range(2, input.dim())]
        count = real.sum() * input[0, 0].numel()
        mean = (input * real).sum(dims) / count
        centred = input - mean.view(shape)
        var = (centred.square() * real).sum(dims) / count
        _follow(running_mean, mean, momentum)
        _follow(running_var, var * count / (count - 1).clamp(min=1), momentum)
        scale = (var + eps).rsqrt()
        if weight is not None:
            scale = scale * weight
        output = centred * scale.view(shape)
        if bias is not None:
            output = output + bias.view(shape)
        return output.to(dtype)

    def _instance_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if use_input_stats and running_mean is not None:
            wide = _wide(input.detach())
            real = self._share(wide).flatten(1)
            flat = wide.flatten(2)
            count = real.sum()
            _follow(running_mean, (flat.mean(2) * real).sum(0) / count, momentum)
            _follow(running_var, (flat.var(2) * real).sum(0) / count, momentum)
            running_mean = None
            running_var = None
        return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)

    def _share(self, input: Tensor) -> Tensor:
        """1 for each real sample and 0 for the others, in as many dimensions as `input` has."""
        if len(input) != len(self._real):
            raise RuntimeError("BatchNorm over something else than the samples of a batch")
        return self._real.to(input.dtype).view(-1, *[1] * (input.dim() - 1))


def _wide(input: Tensor) -> Tensor:
    """The input in 32 bits if it has 16."""
    if input.element_size() < 4:
        return input.float()
    return input


def _follow(running: Tensor | None, new: Tensor, momentum: float) -> None:
    """Move a running statistic towards the batch's, in place."""
    if running is not None:
        running.mul_(1 - momentum).add_(momentum * new.detach())
