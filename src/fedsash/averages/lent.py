"""A module that is lent: for a while it has other values, such as an average's, then its own again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..settings.errors import ModelError, RunError, shortened, some
from ..settings.fingerprint import OTHER_DEFAULTS, unlike
from ..vector.arrays import writable
from ..vector.private_torch import point
from ..vector.wrapped import local

log = logging.getLogger("fedsash")

_lent: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""The modules that are lent, and how often; most of the time none."""
LONG = 100
"""The letters of a setting's value beyond which a message shortens it."""

Live = Callable[[], Mapping[str, Tensor]]
"""Gives all tensors of a module by their names, as they are now."""

KeptBuffer = tuple[Tensor | None, Tensor | None]
"""A layer's buffer, which may be None, and a copy of its values; None in its place if they can't be written."""


def is_lent(module: nn.Module) -> bool:
    """Whether the module, or a part of it, has other values at the moment."""
    return bool(_lent) and any(part in _lent for part in module.modules())


class _Loan:
    """What a module to which values are lent had before: its parameters' values, and the buffers of each layer."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.parameters: dict[str, Tensor] = {}
        """Copies of the parameters' values."""
        self.buffers: dict[nn.Module, dict[str, KeptBuffer]] = {}
        """By the name that a layer has for it: a buffer, and a copy of its values if it can be written."""

    def keep(self, module: nn.Module, parameters: Mapping[str, Tensor], device: torch.device | None) -> None:
        """Copy the values that these parameters have, to a device if one is named, and all buffers of the module."""
        for name, tensor in parameters.items():
            values = local(tensor.data)
            self.parameters[name] = values.to(device or values.device, copy=True)
        for layer in module.modules():
            self.buffers[layer] = {name: (buffer, _copied(buffer)) for name, buffer in layer._buffers.items()}

    def values(self) -> dict[int, Tensor]:
        """The values that the tensors had before, by the `id` that a tensor of this name has now."""
        before: dict[int, Tensor] = {}
        for name, tensor in self.live().items():
            if name in self.parameters:
                before[id(tensor)] = self.parameters[name]
        for layer, buffers in self.buffers.items():
            for name, (_, values) in buffers.items():
                if values is not None:
                    before[id(layer._buffers.get(name))] = values
        return before


_loans: list[_Loan] = []
"""What is lent, in the order in which it was lent."""


def own_values(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by their names; of those that are lent, the values that they have afterwards."""
    before: dict[int, Tensor] = {}
    for loan in reversed(_loans):  # what the first loan has kept was there before all of them
        before |= loan.values()
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own[name] = before.get(id(tensor), tensor).to(tensor.device)  # a loan may keep them on another one
    return own


@contextmanager
def lent(
    module: nn.Module, live: Live, values: Mapping[str, Tensor], device: torch.device | None = None
) -> Iterator[None]:
    """Give the module other `values`. At the end it has its own values and all its buffers again, bitwise.

    `live` gives all its tensors as they are now. The rest of the module is as it is while nothing is lent. Values that
    are lent to the same module meanwhile may be given back in any order. The parameters' own values lie on `device`
    meanwhile, by default on that of the module. Raises `RunError` for values of other shapes.
    Raises `ModelError` at the end if one of these tensors is gone or has another shape; the others are restored. A
    warning names the parameters that somebody else has changed meanwhile.
    """
    tensors = live()
    shapes = {name: list(local(tensors[name]).shape) for name in values if name in tensors}
    value_shapes = {name: list(value.shape) for name, value in values.items()}
    check_fits("the average does not fit the module", shapes, value_shapes)
    layers = list(module.modules())
    new_values: dict[str, Tensor] = {}
    for name, value in own_values(tensors).items():
        if value is not tensors[name] and _takes(tensors[name], value):  # another loan has changed it
            new_values[name] = value
    new_values |= values
    loan = _Loan(live)
    _loans.append(loan)
    _count(layers, 1)
    try:
        with unfolded(module):
            parameters = {name: tensors[name] for name in new_values if isinstance(tensors[name], nn.Parameter)}
            loan.keep(module, parameters, device)
            put(tensors, new_values)
        yield
    finally:
        _count(layers, -1)
        later = _loans[_loans.index(loan) + 1 :]
        _loans.remove(loan)
        with unfolded(module):
            if not later:
                _warn_of_changes(live(), values)
            _give_back(loan, later)
    tensors = live()
    for name, value in loan.parameters.items():
        if name not in tensors or local(tensors[name]).shape != value.shape:
            raise ModelError(f"the module has no such {name} any more, which can't be restored after the average")


def _give_back(loan: _Loan, later: list[_Loan]) -> None:
    """Restore what a loan has kept.

    The values of `later` loans of the same tensors stay in the module. What this loan has kept becomes what they
    restore at their end, in place of the values that they met.
    """
    tensors = loan.live()
    values = {name: value for name, value in loan.parameters.items() if name in tensors}
    for other in later:
        other_names = {id(tensor): name for name, tensor in other.live().items() if name in other.parameters}
        for name in list(values):
            other_name = other_names.get(id(tensors[name]))
            if other_name is not None:
                other.parameters[other_name] = values.pop(name)
        for layer in loan.buffers.keys() & other.buffers.keys():
            other.buffers[layer] = loan.buffers.pop(layer)
    for layer, buffers in loan.buffers.items():
        _put_back(layer, buffers)
    tensors = loan.live()
    fitting = {name: value for name, value in values.items() if local(tensors[name]).shape == value.shape}
    _give_back_types(tensors, fitting)
    put(tensors, fitting)


def _give_back_types(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Give tensors the type of their values again, in which alone these are not rounded.

    Somebody who evaluates in half precision may leave the module so.
    """
    changed: list[str] = []
    for name, value in values.items():
        tensor = tensors[name]
        if tensor.dtype != value.dtype and local(tensor) is tensor:
            point(tensor, value.to(tensor.device, copy=True))
            changed.append(name)
    if changed:
        dtype = values[changed[0]].dtype
        log.warning("%s had another type while the average was in it; %s again", some(changed), dtype)


def _put_back(layer: nn.Module, buffers: Mapping[str, KeptBuffer]) -> None:
    """Let a layer have the buffers that it had, with the values that they had.

    In a forward pass a layer may write into a buffer, replace it by another one, or register a new one.
    """
    for name in layer._buffers.keys() - buffers.keys():
        delattr(layer, name)
    for name, (buffer, values) in buffers.items():
        present = layer._buffers.get(name)
        if buffer is None or values is None:
            layer._buffers[name] = buffer
        elif present is not None and present.dtype == values.dtype and _takes(present, values):
            put({name: present}, {name: values})
        else:
            device = buffer.device if present is None else present.device
            point(buffer, values.to(device))
            layer._buffers[name] = buffer


def _takes(tensor: Tensor, value: Tensor) -> bool:
    """Whether a value can be written into a tensor's memory."""
    memory = local(tensor)
    return memory.shape == value.shape and writable(memory)


def _copied(buffer: Tensor | None) -> Tensor | None:
    """A copy of a buffer's values, unless it can't be written in place either."""
    if buffer is None or not writable(local(buffer)):
        return None
    return local(buffer.detach()).clone()


def _warn_of_changes(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Warn of parameters that have other values than those that were lent."""
    changed = []
    for name, value in values.items():
        tensor = tensors.get(name)
        if not isinstance(tensor, nn.Parameter) or local(tensor).shape != value.shape:
            continue  # statistics move in train mode
        now = local(tensor.detach())
        before = value.to(now)
        # `equal` is the quick one of the two; `allclose` also knows that NaN is still NaN.
        if not torch.equal(now, before) and not torch.allclose(now, before, rtol=0, atol=0, equal_nan=True):
            changed.append(name)
    if changed:
        log.warning("%s was changed while the average was in the module; %s", some(changed), UNDONE)


UNDONE = "it is put back (an optimiser with eval() and train() is switched before and after, not inside)"


@contextmanager
def switches_kept(optimisers: Iterable[object]) -> Iterator[None]:
    """Note the calls of optimisers' `eval()` and `train()`, and make them at the end.

    A schedule-free optimiser moves the parameters from one of its two models to the other. While an average is in the
    module it would move the average, and its own models would be wrong afterwards.
    """
    calls: list[Callable[[], object]] = []
    switches: list[tuple[object, str]] = []
    for optimiser in optimisers:
        for name in SWITCHES:
            if switchable(optimiser, name):
                switches.append((optimiser, name))
    for optimiser, name in switches:
        setattr(optimiser, name, _NotedCalls(getattr(optimiser, name), calls))
    try:
        yield
    finally:
        for optimiser, name in switches:
            delattr(optimiser, name)
        for call in calls:
            call()


SWITCHES = ("eval", "train")


def switchable(optimiser: object, *names: str) -> bool:
    """Whether an optimiser has one of these methods, by default `eval` or `train`."""
    return any(callable(getattr(optimiser, name, None)) for name in names or SWITCHES)


class _NotedCalls:
    """Stands for a method; its calls are added to a list."""

    def __init__(self, method: Callable[..., object], calls: list[Callable[[], object]]) -> None:
        self._method = method
        self._calls = calls

    def __call__(self, *arguments: object, **keywords: object) -> None:
        self._calls.append(partial(self._method, *arguments, **keywords))


def checksums(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """A number for each tensor that changes with its bits: their sum as whole numbers."""
    if not tensors:
        return {}
    sums: list[Tensor] = []
    for tensor in tensors.values():
        values = local(tensor.detach()).contiguous()
        sums.append(values.view(INTEGERS[values.itemsize]).sum(dtype=torch.int64))
    numbers = torch.stack([total.cpu() for total in sums]).tolist()
    return dict(zip(tensors, numbers, strict=True))


INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""A type of whole numbers by its bytes."""


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Let each layer be in train or eval mode at the end as it is now."""
    modes = [(layer, layer.training) for layer in module.modules()]
    try:
        yield
    finally:
        for layer, mode in modes:  # the outer ones first: they set the inner ones, too
            if layer.training != mode:
                layer.train(mode)


@contextmanager
def unfolded(module: nn.Module) -> Iterator[None]:
    """The module in train mode while its values are exchanged, and then in its modes again.

    In eval mode a layer may keep something that it has computed from its values, such as a frozen weight with an
    adapter folded into it. It takes that out in `train()` and computes it anew in `eval()`.
    """
    with modes_kept(module):
        module.train()
        yield


def _count(layers: Iterable[nn.Module], change: int) -> None:
    """Note that the layers of a module are lent once more, or once less."""
    for layer in layers:
        loans = _lent.pop(layer, 0) + change
        if loans:
            _lent[layer] = loans


def put(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Write values into tensors' memory, where whoever shares it finds them. Numbers of batches are rounded.

    PyTorch counts it as a change of the tensors: a layer that keeps something of its weight finds another version, and
    a graph that was made before can't go backwards with other values. PyTorch also keeps casts of parameters until the
    outermost block of `torch.autocast` ends; those before are forgotten.
    """
    for name, value in values.items():
        tensor = local(tensors[name].data)
        if value.is_floating_point() and not tensor.is_floating_point():
            value = value.round()
        tensor.copy_(value)
        if not tensors[name].is_inference():  # else it has no version
            torch.autograd.graph.increment_version(tensors[name])
    torch.clear_autocast_cache()


def check_fits(what: str, here: Mapping[str, object], there: Mapping[str, object], advice: str = "") -> None:
    """Raise `RunError`, which begins with `what` and names the first difference, unless two mappings agree.

    The values are compared as texts, those of settings as in a fingerprint.
    """
    for name in (*here, *there):
        text = str(here.get(name, "nothing"))
        other_text = str(there.get(name, "nothing"))
        if text == other_text:
            continue
        if name == "defaults":
            raise RunError(f"{what}: {OTHER_DEFAULTS}")
        old, new = _from_where_they_differ(*unlike(other_text, text))
        raise RunError(f"{what}: {name} is {old} there and {new} here{advice}")


def _from_where_they_differ(old: str, new: str) -> tuple[str, str]:
    """Two texts, shortened. Of long ones, such as a part of many names, the beginning may be the same."""
    if max(len(old), len(new)) <= LONG:
        return old, new
    alike = 0
    for sign, other_sign in zip(old, new, strict=False):
        if sign != other_sign:
            break
        alike += 1
    begin = new.rfind(" ", 0, alike) + 1
    dots = "..." if begin else ""
    return shortened(dots + old[begin:], LONG), shortened(dots + new[begin:], LONG)
