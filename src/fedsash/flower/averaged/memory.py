"""What a strategy remembers from round to round, in the attributes of the object."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator
from inspect import isfunction
from types import MemberDescriptorType
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from ...vector.arrays import Vectors
from .arrays import pack

HOLDERS = np.generic | np.ndarray | Tensor | Array | ArrayRecord

Memory = dict[str, Any]
"""Values of attributes by their names. Those of a strategy in an attribute have its name and a dot before theirs."""


def chain(strategy: Strategy, at: str = "") -> Iterator[tuple[str, Strategy]]:
    """A strategy and those inside it, each with the beginning of its attributes' names."""
    yield at, strategy
    for name, value in _own(strategy).items():
        if isinstance(value, Strategy):
            yield from chain(value, f"{at}{name}.")


def remembered(strategy: Strategy, spent: bool = True) -> Memory:
    """A copy of all numbers, texts and arrays in the attributes of a strategy, and in lists and dicts of them.

    An object with `state_dict` and `load_state_dict` stands for its state; without `spent`, those that account for
    privacy (with `get_privacy_spent`) are left out.
    """
    attributes = (each for each in _attributes(strategy) if spent or not hasattr(each[2], "get_privacy_spent"))
    found = ((f"{at}{name}", _state(value)) for at, name, value in attributes)
    return {place: copy.deepcopy(state) for place, state in found if _plain(state)}


def restore(strategy: Strategy, memory: Memory) -> None:
    """Give a strategy back what it remembered. Raises `KeyError` if it has no strategy inside that the memory has."""
    inside = dict(chain(strategy))
    for place, value in memory.items():
        at, dot, name = place.rpartition(".")
        owner = inside[f"{at}{dot}"]
        own = copy.deepcopy(value)
        if _stateful(getattr(owner, name, None)):
            getattr(owner, name).load_state_dict(own)
        else:
            setattr(owner, name, own)


def undo(strategy: Strategy, memory: Memory) -> None:
    """Set a strategy back to what `remembered` gave without what is spent; attributes made since then are removed."""
    restore(strategy, memory)
    inside = dict(chain(strategy))
    for place in remembered(strategy, spent=False).keys() - memory.keys():
        at, dot, name = place.rpartition(".")
        delattr(inside[f"{at}{dot}"], name)


def changed(memory: Memory, before: Memory) -> Memory:
    """The values that differ from those of `before`. The rest are settings, which a program gives."""
    return {name: value for name, value in memory.items() if name not in before or not _same(value, before[name])}


def unsaved(settings: Memory, saved: Memory) -> Memory:
    """The settings that a training has not changed before it was taken up."""
    return {name: value for name, value in settings.items() if name not in saved}


def unknown(strategy: Strategy) -> list[str]:
    """The attributes that hold what can't be saved, functions aside."""
    rest = ((at, name, v) for at, name, v in _attributes(strategy) if not _plain(_state(v)))
    return [f"{at}{name}" for at, name, v in rest if _stateful(v) or not (isinstance(v, Strategy) or _function(v))]


def _attributes(strategy: Strategy) -> Iterator[tuple[str, str, Any]]:
    for at, each in chain(strategy):
        yield from ((at, name, value) for name, value in _own(each).items())


def _own(thing: Any) -> dict[str, Any]:
    """The attributes of an object, also those in `__slots__`."""
    slots = {
        n for cls in type(thing).__mro__ for n, each in vars(cls).items() if isinstance(each, MemberDescriptorType)
    }
    return {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | getattr(thing, "__dict__", {})


def _function(value: Any) -> bool:
    """Whether a value is a function or a class, and no object with attributes whose class has written `__call__`."""
    return callable(value) and (isinstance(value, type) or not isfunction(type(value).__call__) or not _own(value))


def _state(value: Any) -> Any:
    return value.state_dict() if _stateful(value) else value


def _stateful(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _same(one: Any, other: Any) -> bool:
    """Whether two values are of the same types and bytes."""
    here: Vectors = {}
    there: Vectors = {}
    if pack(one, here) != pack(other, there):
        return False
    pairs = ((tensor, there[name]) for name, tensor in here.items())
    return all(a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def _plain(value: Any) -> bool:
    """Whether `pack` keeps a value with its type. Subclasses of containers, such as defaultdict, have more to them."""
    if type(value) in (dict, OrderedDict):
        return all(_plain(key) and _plain(each) for key, each in value.items())
    if type(value) in (list, tuple):
        return all(map(_plain, value))
    if isinstance(value, np.ndarray | np.generic):
        return not value.dtype.hasobject
    if isinstance(value, Tensor):
        return value.is_leaf  # one with a graph can't be copied
    return type(value) in (type(None), bool, int, float, str, bytes) or isinstance(value, HOLDERS)
