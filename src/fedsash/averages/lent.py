"""A module that is lent: for a while it has other values, such as an average's, then its own again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..basics.arrays import writable
from ..basics.errors import ModelError, RunError, shortened
from ..basics.fingerprint import OTHER_DEFAULTS, unlike
from ..basics.wrapped import local

_lent: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""The modules that are lent, and how often; most of the time none."""
LONG = 100
"""The letters of a setting's value beyond which a message shortens it."""


def is_lent(module: nn.Module) -> bool:
    """Whether the module, or a part of it, has other values at the moment."""
    return bool(_lent) and any(part in _lent for part in module.modules())


class _Loan:
    """The values that a module had when others were lent to it, by the names of its tensors."""

    def __init__(self) -> None:
        self.own: dict[str, Tensor] = {}


_loans: WeakKeyDictionary[nn.Module, list[_Loan]] = WeakKeyDictionary()
"""What is lent to each module, in the order in which it was lent."""


@contextmanager
def lent(module: nn.Module, live: Callable[[], Mapping[str, Tensor]], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Give the module other `values`. At the end it has its own values and all its buffers again, bitwise.

    `live` gives all its tensors as they are now. Values that are lent to the same module meanwhile may be given back in
    any order. Raises `RunError` for values of other shapes. Raises `ModelError` at the end if one of these tensors is
    gone or has another shape; the others are restored.
    """
    tensors = live()
    shapes = {name: list(local(tensors[name]).shape) for name in values if name in tensors}
    others = {name: list(value.shape) for name, value in values.items()}
    check_fits("Tracker.applied: the average does not fit this tracker", shapes, others)
    # A forward pass in train mode moves buffers, too.
    moving = [name for name, buffer in module.named_buffers() if writable(buffer)]
    loan = _Loan()
    loans = _loans.setdefault(module, [])
    loans.append(loan)
    _count(parts := [*module.modules()], 1)
    try:
        with unfolded(module):
            loan.own = {name: local(tensors[name].data).clone() for name in dict.fromkeys([*values, *moving])}
            put(tensors, values)
        yield
    finally:
        _count(parts, -1)
        tensors = live()  # the module may have moved meanwhile
        there = {n: v for n, v in loan.own.items() if n in tensors and local(tensors[n]).shape == v.shape}
        later = loans[loans.index(loan) + 1 :]
        loans.remove(loan)
        if later:  # what was lent afterwards is still there, and is given back to these values
            beneath = later[0].own
            beneath |= {name: value for name, value in there.items() if name in beneath}
            there = {name: value for name, value in there.items() if name not in beneath}
        with unfolded(module):
            put(tensors, there)
    for name in values:
        if name not in loan.own or name not in tensors or local(tensors[name]).shape != loan.own[name].shape:
            raise ModelError(f"Tracker.applied: the module has no such {name} any more, which can't be restored")


@contextmanager
def unfolded(module: nn.Module) -> Iterator[None]:
    """The module in train mode while its values are exchanged, and then in its modes again.

    In eval mode a layer may keep something that it has computed from its values, such as a frozen weight with an
    adapter folded into it. It takes that out in `train()` and computes it anew in `eval()`.
    """
    modes = [(layer, layer.training) for layer in module.modules()]
    module.train()
    try:
        yield
    finally:
        for layer, mode in modes:  # the outer ones first: they set the inner ones, too
            if layer.training != mode:
                layer.train(mode)


def _count(parts: Iterable[nn.Module], change: int) -> None:
    """Note that the parts of a module are lent once more, or once less."""
    for part in parts:
        if often := _lent.pop(part, 0) + change:
            _lent[part] = often


def put(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Write values into tensors' memory, where whoever shares it finds them. Numbers of batches are rounded.

    PyTorch keeps casts of parameters until the outermost block of `torch.autocast` ends; those before are forgotten.
    """
    for name, value in values.items():
        # `data`, unlike `detach()`, lets a graph that was made before go backwards afterwards.
        tensor = local(tensors[name].data)
        counted = value.is_floating_point() and not tensor.is_floating_point()
        tensor.copy_(value.round() if counted else value)
    torch.clear_autocast_cache()


def check_fits(what: str, here: Mapping[str, object], there: Mapping[str, object], advice: str = "") -> None:
    """Raise `RunError`, which begins with `what` and names the first difference, unless two mappings agree.

    The values are compared as texts, those of settings as in a fingerprint.
    """
    for name in (*here, *there):
        ours = str(here.get(name, "nothing"))
        theirs = str(there.get(name, "nothing"))
        if ours != theirs:
            if name == "defaults":
                raise RunError(f"{what}: {OTHER_DEFAULTS}")
            old, new = _from_where_they_differ(*unlike(theirs, ours))
            raise RunError(f"{what}: {name} is {old} there and {new} here{advice}")


def _from_where_they_differ(old: str, new: str) -> tuple[str, str]:
    """Two texts, shortened. Of long ones, such as a part of many names, the beginning may be the same."""
    begin = 0
    if max(len(old), len(new)) > LONG:
        alike = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        begin = new.rfind(" ", 0, alike) + 1
    dots = "..." if begin else ""
    return shortened(dots + old[begin:], LONG), shortened(dots + new[begin:], LONG)
