"""Modules inside the wrappers of PyTorch: compiled, replicated, sharded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

Value = TypeVar("Value")

INSERTED = re.compile(r"(^|(?<=\.))(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""What `torch.compile`, FSDP and checkpointing insert into the names of a module's tensors."""


def unwrapped(module: nn.Module) -> nn.Module:
    """The module itself, without `torch.compile` (its `_orig_mod`), DataParallel and DistributedDataParallel."""
    while True:
        inner = module.module if isinstance(module, DataParallel | DistributedDataParallel) else None
        inner = getattr(module, "_orig_mod", inner)
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def plain(named: Mapping[str, Value]) -> dict[str, Value]:
    """The same with the names that the tensors have without wrappers."""
    return {INSERTED.sub("", name): value for name, value in named.items()}


def local(tensor: Tensor) -> Tensor:
    """The values that lie in this process, in the tensor's own memory: of a sharded tensor (FSDP2) its shard."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
