"""All private parts of PyTorch that fedsash uses. PyTorch may change them, so no other module uses any.

Tested with PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils import _pytree

Norm = _NormBase
"""BatchNorm and InstanceNorm layers."""
PLAIN_RESULTS = torch._C._disabled_torch_function_impl
"""The `__torch_function__` of a class of tensors of which every operation makes a plain tensor."""


def is_instance_norm(layer: nn.Module) -> bool:
    """Whether a layer is an InstanceNorm of any dimension."""
    return isinstance(layer, _InstanceNorm)


def is_batch_norm(layer: nn.Module) -> bool:
    """Whether a layer keeps, or depends on, statistics over samples.

    These are BatchNorm layers of every kind, and InstanceNorm layers with running statistics.
    """
    return isinstance(layer, _BatchNorm) or (isinstance(layer, _InstanceNorm) and layer.track_running_stats)


def point(tensor: Tensor, values: Tensor) -> None:
    """Let a parameter or a buffer share the memory of `values`, which has its shape."""
    tensor.data = values


def in_type(value: Any, dtype: torch.dtype) -> Any:
    """A tensor, or a structure of tensors such as a model's output, with its floating-point tensors in this type."""
    return _pytree.tree_map_only(Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, value)


def lerp_all(ends: Sequence[Tensor], to: Sequence[Tensor], share: float) -> None:
    """Move each tensor of a list towards its partner, in place: `end += share * (to - end)`, on a GPU in one pass."""
    torch._foreach_lerp_(list(ends), list(to), share)


def seed_cpu(seed: int) -> None:
    """Seed the CPU's generator only. `torch.manual_seed` also seeds every accelerator, which takes far longer."""
    torch.default_generator.manual_seed(seed)


def _lerp(self: Tensor, end: Tensor, weight: float) -> Tensor:
    return self.copy_(torch.lerp(self, end, weight))


def _addcmul(self: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return self.copy_(torch.addcmul(self, a, b, value=value))


# vmap has no rules for these two operations, and would do them for one run after another
_RULES = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
_RULES.impl("lerp_.Scalar", _lerp, "FuncTorchBatched")  # type: ignore[no-untyped-call]
_RULES.impl("addcmul_", _addcmul, "FuncTorchBatched")  # type: ignore[no-untyped-call]


def transformed() -> bool:
    """Whether `vmap`, `grad` or another transform of functions is at work."""
    return bool(torch._C._are_functorch_transforms_active())


def compiled(function: Callable[..., None], tensors: list[Tensor]) -> Callable[..., Any]:
    """The function, compiled for tensors of these shapes: it is traced to a flat graph, which Inductor compiles."""
    from torch import _inductor as inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    copies = [t.clone() for t in tensors]
    run: Callable[..., Any] = inductor.compile(make_fx(function)(*copies), list[Any](copies))
    return run
