"""Tensors that are on another device than the host, on machines that have no other device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("xla:0")
"""A kind of device that no machine of the tests has."""
COPIES = (Tensor.copy_, Tensor.to)


class Elsewhere(Tensor):
    """A tensor in the host's memory that says that it is on `DEVICE`.

    As on a real device, an operation that mixes it with the host's tensors is refused, except a copy.
    """

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function == Tensor.device.__get__:  # type: ignore[attr-defined]
            return DEVICE
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        on_host = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere)]
        if on_host and function not in COPIES:
            raise RuntimeError(f"{function}: expected all tensors on one device, and there are {DEVICE} and cpu")
        if function is Tensor.to:
            return _moved(*args, **kwargs)
        plain_args, plain_kwargs = tree_map_only(Elsewhere, _plain, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*plain_args, **plain_kwargs)
        if function is Tensor.copy_:
            return args[0]
        if isinstance(result, Tensor):
            return _elsewhere(result)
        if isinstance(result, tuple | list) and result and isinstance(result[0], Tensor):  # of `split`, say
            return type(result)([_elsewhere(each) for each in result])
        return result


class DevicePresent(TorchFunctionMode):
    """A context in which the host's tensors, too, can be moved to `DEVICE`."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.to and any(isinstance(each, torch.device) and each == DEVICE for each in args):
            return _moved(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _moved(tensor: Tensor, *to: Any, copy: bool = False) -> Tensor:
    """What `tensor.to(*to)` gives: to another device a copy."""
    leaves = isinstance(tensor, Elsewhere)
    arrives = leaves
    dtype = tensor.dtype
    for each in to:
        if isinstance(each, torch.dtype):
            dtype = each
        elif isinstance(each, Tensor):
            arrives = isinstance(each, Elsewhere)
            dtype = each.dtype
        else:
            arrives = torch.device(each) == DEVICE
    if arrives == leaves and dtype == tensor.dtype and not copy:
        return tensor
    values = _plain(tensor).to(dtype, copy=True)
    if arrives:
        return _elsewhere(values)
    return values


def _plain(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Tensor)


def _elsewhere(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Elsewhere)


def move_elsewhere(module: nn.Module) -> None:
    """Move a module's parameters and buffers to `DEVICE`."""
    for layer in module.modules():
        for name, parameter in layer._parameters.items():
            if parameter is not None:
                moved = _elsewhere(parameter.detach().clone())
                layer._parameters[name] = nn.Parameter(moved, requires_grad=parameter.requires_grad)
        for name, buffer in layer._buffers.items():
            if buffer is not None:
                layer._buffers[name] = _elsewhere(buffer.clone())
