"""What a strategy remembers from round to round, in the attributes of the object."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from ...basics.errors import library

with library("flwr", "fedsash.flower", "fedsash[flower]"):
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import Strategy

HOLDERS = np.generic | np.ndarray | Tensor | Array | ArrayRecord

Memory = dict[str, Any]
"""Values of attributes by their names. Those of a strategy in an attribute have its name and a dot before theirs."""


def chain(strategy: Strategy, at: str = "") -> Iterator[tuple[str, Strategy]]:
    """A strategy and those inside it, each with the beginning of its attributes' names."""
    yield at, strategy
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            yield from chain(value, f"{at}{name}.")


def remembered(strategy: Strategy) -> Memory:
    """A copy of all numbers, texts and arrays in the attributes of a strategy, and in lists and dicts of them.

    An object with `state_dict` and `load_state_dict`, such as Flower's privacy accountant, stands for its state.
    """
    found = ((f"{at}{name}", _state(value)) for at, name, value in _attributes(strategy))
    return {place: copy.deepcopy(state) for place, state in found if _plain(state)}


def restore(strategy: Strategy, memory: Memory) -> None:
    """Give a strategy back what it remembered. Raises `KeyError` if it has no strategy inside that the memory has."""
    inside = dict(chain(strategy))
    for place, value in memory.items():
        at, dot, name = place.rpartition(".")
        owner, own = inside[f"{at}{dot}"], copy.deepcopy(value)
        if _stateful(getattr(owner, name, None)):
            getattr(owner, name).load_state_dict(own)
        else:
            setattr(owner, name, own)


def changed(memory: Memory, before: Memory) -> Memory:
    """The values that have arrays or differ from those of `before`. The rest are settings, which a program gives."""
    return {name: v for name, v in memory.items() if _arrays(v) or _arrays(before.get(name)) or v != before.get(name)}


def unknown(strategy: Strategy) -> list[str]:
    """The attributes that hold what can't be saved, functions aside."""
    rest = ((at, name, v) for at, name, v in _attributes(strategy) if not _plain(_state(v)))
    return [f"{at}{name}" for at, name, v in rest if _stateful(v) or not (isinstance(v, Strategy) or callable(v))]


def _attributes(strategy: Strategy) -> Iterator[tuple[str, str, Any]]:
    for at, each in chain(strategy):
        yield from ((at, name, value) for name, value in vars(each).items())


def _state(value: Any) -> Any:
    return value.state_dict() if _stateful(value) else value


def _stateful(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _arrays(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_arrays, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_arrays, value))
    return isinstance(value, HOLDERS)


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
    return value is None or isinstance(value, bool | int | float | str | HOLDERS)
