"""Tensors of a model that share memory: in copies of the model, which train, each has memory of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn

from ..settings.errors import ModelError


def check_no_overlap(module: nn.Module, trained: Collection[str]) -> None:
    """Raise `ModelError` if a tensor whose name is in `trained` shares an entry with another tensor of the module.

    Tied parameters are one tensor. Tensors may be views of one memory, as long as no two have an entry in common.
    """
    spans = sorted((_span(tensor), name, tensor) for name, tensor in _tensors(module))
    before: list[tuple[int, str, Tensor]] = []
    for (start, stop), name, tensor in spans:
        before = [earlier for earlier in before if earlier[0] > start]
        for _, other_name, other in before:
            if (name in trained or other_name in trained) and _have_common_entry(tensor, other):
                raise ModelError(
                    f"{other_name} and {name} share memory, and copies of the model, which train, have one for each: "
                    "let both be the same parameter, or clone() one of them"
                )
        before.append((stop, name, tensor))


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a module that lie in memory as plain numbers, each once."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        is_plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
        if is_plain and not tensor.is_meta and tensor.numel():
            yield name, tensor


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses between which the entries of a tensor lie."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.itemsize


def _have_common_entry(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors whose spans overlap have an entry in common; columns of one matrix, say, have none."""
    if tensor.device != other.device:
        return False
    if tensor.itemsize != other.itemsize:
        return True
    return bool(torch.isin(_addresses(tensor), _addresses(other)).any())


def _addresses(tensor: Tensor) -> Tensor:
    """The address of each entry of a tensor."""
    addresses = torch.tensor(tensor.data_ptr())
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        addresses = addresses.unsqueeze(-1) + torch.arange(size) * step * tensor.itemsize
    return addresses
