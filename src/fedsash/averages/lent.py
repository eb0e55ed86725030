"""A module that is lent: for a while it has other values, such as an average's, then its own again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

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


@contextmanager
def lent(module: nn.Module, live: Callable[[], Mapping[str, Tensor]], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Give the module other `values`. At the end it has its own values and all its buffers again, bitwise.

    `live` gives all its tensors as they are now. Raises `RunError` for values of other shapes. Raises `ModelError` at
    the end if one of these tensors is gone or has another shape; the others are restored.
    """
    tensors = live()
    shapes = {name: list(local(tensors[name]).shape) for name in values if name in tensors}
    others = {name: list(value.shape) for name, value in values.items()}
    check_fits("Tracker.applied: the average does not fit this tracker", shapes, others)
    # A forward pass in train mode moves buffers, too.
    moving = [name for name, buffer in module.named_buffers() if writable(buffer)]
    own = {name: local(tensors[name].data).clone() for name in dict.fromkeys([*values, *moving])}
    _count(parts := [*module.modules()], 1)
    try:
        put(tensors, values)
        yield
    finally:
        _count(parts, -1)
        tensors = live()  # the module may have moved meanwhile
        there = {n: v for n, v in own.items() if n in tensors and local(tensors[n]).shape == v.shape}
        put(tensors, there)
    for name in values:
        if name not in there:
            raise ModelError(f"Tracker.applied: the module has no such {name} any more, which can't be restored")


def _count(parts: Iterable[nn.Module], change: int) -> None:
    """Note that the parts of a module are lent once more, or once less."""
    for part in parts:
        if often := _lent.pop(part, 0) + change:
            _lent[part] = often


def put(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Write values into tensors' memory, where whoever shares it finds them. Numbers of batches are rounded."""
    for name, value in values.items():
        # `data`, unlike `detach()`, lets a graph that was made before go backwards afterwards.
        tensor = local(tensors[name].data)
        counted = value.is_floating_point() and not tensor.is_floating_point()
        tensor.copy_(value.round() if counted else value)


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
