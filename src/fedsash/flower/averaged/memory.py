"""What a strategy remembers from round to round, in the attributes of the object."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Collection, Iterator
from inspect import isfunction
from types import MemberDescriptorType
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from ...settings.errors import RunError, brief
from ...vector.arrays import Vectors
from .arrays import ObjectState, pack

HOLDERS = np.generic | np.ndarray | Tensor | Array | ArrayRecord

Memory = dict[str, Any]
"""Values of attributes by their names. Those of a strategy in an attribute have its name and a dot before theirs."""


def chain(strategy: Strategy, prefix: str = "") -> Iterator[tuple[str, Strategy]]:
    """A strategy and those inside it, each with the prefix of its attributes' names in a `Memory`."""
    yield prefix, strategy
    for name, value in _vars(strategy).items():
        if isinstance(value, Strategy):
            yield from chain(value, f"{prefix}{name}.")


def remembered(strategy: Strategy, spent: bool = True) -> Memory:
    """A copy of all numbers, texts and arrays in the attributes of a strategy, and in lists and dicts of them.

    Of an object with `state_dict` and `load_state_dict` it is an `ObjectState`; without `spent`, those that account for
    privacy (with `get_privacy_spent`) are left out.
    """
    memory = {}
    for name, value in attributes(strategy):
        if not spent and hasattr(value, "get_privacy_spent"):
            continue
        state = _state(value)
        if _plain(state):
            memory[name] = copy.deepcopy(state)
    return memory


def restore(strategy: Strategy, memory: Memory) -> None:
    """Give a strategy back what it remembered.

    Raises `KeyError` if it has no strategy inside that the memory has, and `RunError` if it has no object for a state.
    Tensors stay where they are: an optimiser goes on with those that it was made of.
    """
    places = list(_places(strategy, memory))
    # Of attributes that are one tensor and were several, the first one keeps it.
    for owner, name, value in reversed(places):
        current: Any = getattr(owner, name, None)
        if not isinstance(value, ObjectState):
            setattr(owner, name, _put(value, current))
            continue
        if not _stateful(current):
            kind = type(owner).__name__
            problem = f"what is saved of {kind}.{name} is an object's state, and here it is {brief(current)}"
            raise RunError(f"Averaged: {problem}: make the object in {kind}.__init__")
        current.load_state_dict(copy.deepcopy(value.state))
    for owner, name, value in places:
        if not isinstance(value, ObjectState) and not _same(getattr(owner, name), value):
            setattr(owner, name, copy.deepcopy(value))


def undo(strategy: Strategy, memory: Memory, names: Collection[str]) -> None:
    """Set a strategy back to what `remembered` gave without what is spent, when it had the attributes `names`.

    Those made since then are removed.
    """
    restore(strategy, memory)
    made = remembered(strategy, spent=False).keys() - names
    for owner, name, _ in _places(strategy, dict.fromkeys(made)):
        delattr(owner, name)


def changed(memory: Memory, before: Memory) -> Memory:
    """The values that differ from those of `before`. The rest are settings, which a program gives."""
    return {name: value for name, value in memory.items() if name not in before or not _same(value, before[name])}


def unsaved(settings: Memory, saved: Memory) -> Memory:
    """The settings that a training has not changed before it was taken up."""
    return {name: value for name, value in settings.items() if name not in saved}


def unknown(strategy: Strategy) -> list[str]:
    """The names of the attributes whose values can't be saved. Functions and strategies inside do not count."""
    names = []
    for name, value in attributes(strategy):
        if _plain(_state(value)):
            continue
        if _stateful(value) or not (isinstance(value, Strategy) or _function(value)):
            names.append(name)
    return names


def attributes(strategy: Strategy) -> Iterator[tuple[str, Any]]:
    """The attributes of a strategy and of those inside it, by their names in a `Memory`."""
    for prefix, each in chain(strategy):
        for name, value in _vars(each).items():
            yield f"{prefix}{name}", value


def _places(strategy: Strategy, memory: Memory) -> Iterator[tuple[Any, str, Any]]:
    """The strategy that has each attribute of a memory, the attribute's name there, and its value in the memory."""
    strategies = dict(chain(strategy))
    for path, value in memory.items():
        outer, dot, name = path.rpartition(".")
        yield strategies[f"{outer}{dot}"], name, value


def _vars(thing: Any) -> dict[str, Any]:
    """The attributes of an object, also those in `__slots__`."""
    attributes = {}
    for cls in type(thing).__mro__:
        for name, member in vars(cls).items():
            if isinstance(member, MemberDescriptorType) and hasattr(thing, name):
                attributes[name] = getattr(thing, name)
    return attributes | getattr(thing, "__dict__", {})


def _function(value: Any) -> bool:
    """Whether a value is a function or a class, and no object with attributes whose class has written `__call__`."""
    if not callable(value):
        return False
    return isinstance(value, type) or not isfunction(type(value).__call__) or not _vars(value)


def _state(value: Any) -> Any:
    """What is saved of a value: its `state_dict`, if it has one that can be loaded again, else the value."""
    if _stateful(value):
        return ObjectState(value.state_dict())
    return value


def _stateful(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _put(value: Any, current: Any) -> Any:
    """A copy of a value, in the tensors of the `current` one where they have its shapes and types."""
    if isinstance(value, Tensor) and isinstance(current, Tensor) and _fits(value, current):
        with torch.no_grad():
            current.copy_(value)
        return current
    if type(value) is type(current) and type(value) in (list, tuple) and len(value) == len(current):
        return type(value)(map(_put, value, current))
    if type(value) is type(current) and type(value) in (dict, OrderedDict):
        return type(value)((name, _put(each, current.get(name))) for name, each in value.items())
    return copy.deepcopy(value)


def _fits(value: Tensor, current: Tensor) -> bool:
    """Whether a value can be written into a tensor, which remains what it is."""
    is_writable = current.is_leaf and current.is_contiguous() and not current.is_inference()
    return is_writable and (current.shape, current.dtype) == (value.shape, value.dtype)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are of the same types and bytes."""
    tensors: Vectors = {}
    others: Vectors = {}
    if pack(one, tensors) != pack(other, others):
        return False
    for name, tensor in tensors.items():
        if tensor.dtype != others[name].dtype or not torch.equal(tensor, others[name]):
            return False
    return True


def _plain(value: Any) -> bool:
    """Whether `pack` keeps a value with its type. Subclasses of containers, such as defaultdict, have more to them."""
    if type(value) in (dict, OrderedDict):
        return all(_plain(key) and _plain(each) for key, each in value.items())
    if type(value) in (list, tuple):
        return all(map(_plain, value))
    if isinstance(value, ObjectState):
        return _plain(value.state)
    if isinstance(value, np.ndarray | np.generic):
        return not value.dtype.hasobject
    if isinstance(value, Tensor):
        return value.is_leaf  # one with a graph can't be copied
    return type(value) in (type(None), bool, int, float, str, bytes) or isinstance(value, HOLDERS)
