"""Tensors of which each process holds a shard (PyTorch's DTensor, as FSDP2 makes them)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .wrapped import sharded


def is_sharded(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


def resharded(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of a module; of one that FSDP2 shards its shards, also after a forward pass."""
    for layer in sharded(module):
        layer.reshard()
    return dict(chain(module.named_parameters(), module.named_buffers()))


def as_shard(values: Tensor, like: Tensor) -> Tensor:
    """The DTensor of which each process holds its `values`, laid out as `like`; the values if `like` is a plain one."""
    if not is_sharded(like):
        return values
    from torch.distributed.tensor import DTensor

    layout: Any = like
    whole: Tensor = DTensor.from_local(
        values, layout.device_mesh, layout.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return whole


def own_shard(whole: Tensor, like: Tensor) -> Tensor:
    """What this process holds of a `whole` tensor if it is laid out as `like`. All processes must call it."""
    if not is_sharded(like):
        return whole
    from torch.distributed.tensor import distribute_tensor

    layout: Any = like
    return distribute_tensor(whole.contiguous(), layout.device_mesh, layout.placements).to_local()


def whole_tensor(tensor: Tensor) -> Tensor:
    """All values of a tensor, of a DTensor those of all processes, which must all call it."""
    if not is_sharded(tensor):
        return tensor
    layout: Any = tensor
    whole: Tensor = layout.full_tensor()
    return whole


def is_first_process() -> bool:
    """Whether this is process 0, or the only one."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return True
    return distributed.get_rank() == 0


def agreed(tensors: Iterable[Tensor], names: Collection[str], known: Collection[str]) -> set[str]:
    """Those of the names `known` that are among the `names` of some process, if some of a module's tensors are sharded.

    All processes must call it then. If none is sharded, the names themselves.
    """
    meshes: list[Any] = []
    for tensor in tensors:
        mesh = getattr(tensor, "device_mesh", None)
        if mesh is not None and mesh not in meshes:
            meshes.append(mesh)
    if not meshes:
        return set(names)
    flags = torch.tensor([name in names for name in known], dtype=torch.int32, device=meshes[0].device_type)
    for mesh in meshes:
        for dimension in range(mesh.ndim):
            torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX, mesh.get_group(dimension))
    return {name for name, flag in zip(known, flags.tolist(), strict=True) if flag}
