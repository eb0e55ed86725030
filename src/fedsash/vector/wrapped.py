"""Modules inside the wrappers of PyTorch: compiled, replicated, sharded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ..settings.errors import ModelError

Value = TypeVar("Value")

INSERTED = re.compile(r"(^|(?<=\.))(_orig_mod|_checkpoint_wrapped_module)\.")
"""What `torch.compile` and checkpointing insert into the names of a module's tensors."""


def unwrapped(module: nn.Module) -> nn.Module:
    """The module itself, without `torch.compile` (its `_orig_mod`), DataParallel and DistributedDataParallel."""
    while True:
        if "_orig_mod" in module._modules:  # `getattr` of PEFT's model finds that of the one inside it
            inner = module._modules["_orig_mod"]
        elif isinstance(module, DataParallel | DistributedDataParallel):
            inner = module.module
        else:
            return module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def plain(named: Mapping[str, Value]) -> dict[str, Value]:
    """The same with the names that the tensors have without wrappers."""
    return {INSERTED.sub("", name): value for name, value in named.items()}


def sharded(module: nn.Module) -> list[Any]:
    """The parts of a module that FSDP2 shards. After a forward pass some hold whole tensors, until `reshard()`.

    Raises `ModelError` for FSDP1, which can't be asked for that, and for DeepSpeed's ZeRO-3, whose parameters are empty
    tensors between two steps.
    """
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "ds_id"):
            raise ModelError(
                f"DeepSpeed's ZeRO-3 keeps {name} as an empty tensor between steps: use fully_shard (FSDP2)"
            )
    for layer in module.modules():
        if hasattr(layer, "summon_full_params"):
            raise ModelError(f"{type(layer).__name__} keeps whole tensors after an evaluation: use fully_shard (FSDP2)")
    return [layer for layer in module.modules() if hasattr(layer, "reshard")]


def shard_of(module: nn.Module) -> str:
    """Which shard of a sharded module (FSDP2) lies in this process; empty if it is not sharded."""
    for parameter in module.parameters():
        mesh: Any = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            return f"{mesh.get_coordinate()} of {list(mesh.shape)}"
    return ""


def local(tensor: Tensor) -> Tensor:
    """The values that lie in this process, in the tensor's own memory: of a sharded tensor (FSDP2) its shard."""
    if hasattr(tensor, "to_local"):
        shard: Tensor = tensor.to_local()
        return shard
    return tensor
