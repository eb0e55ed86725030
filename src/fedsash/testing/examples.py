"""Examples of all classes in a registry: one of each class, and one for each further choice of a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from ..methods.sampling import FixedClients, Function, Uniform
from ..methods.schedules import Chained, Cyclic, Exponential, Warmup
from ..vector.arrays import Ints

T = TypeVar("T")


def first_four(round: int, sizes: Ints, seed: int) -> Ints:
    """Four neighbours on a ring of clients; each round starts one client later."""
    return (round + np.arange(4)) % len(sizes)


GIVEN: dict[type, dict[str, Any]] = {
    Uniform: {"count": 4},
    FixedClients: {"rounds": ((0, 3), (5,), (1, 2, 4))},
    Function: {"function": first_four},
    Chained: {"schedules": (Exponential(0.9), Cyclic(0, 3, 0.001), Warmup(2))},
}
"""Values for fields that have no default and can't be chosen by their type."""


def examples(registry: Mapping[str, type[T]]) -> dict[str, T]:
    """Instances of every class in a registry (`METHODS`, `AVERAGES`, ...), by descriptive names.

    Fields have their defaults; required integers are 2, required numbers 0.5. For each field with a choice of words
    there is one more instance for each other word: `"scaffold"`, `"scaffold-option=I"`.
    """
    found: dict[str, T] = {}
    for name, make in registry.items():
        required = _required(make)
        found[name] = make(**required)
        for field, word in _choices(make, found[name]):
            found[f"{name}-{field}={word}"] = make(**required | {field: word})
    return found


def _required(make: Any) -> dict[str, Any]:
    """Values for the fields without a default."""
    given = GIVEN.get(make, {})
    values = {int: 2, float: 0.5}
    hints = get_type_hints(make)
    named = [field.name for field in _fields(make) if field.default is MISSING and field.default_factory is MISSING]
    return given | {name: values[hints[name]] for name in named if name not in given}


def _choices(make: Any, example: Any) -> list[tuple[str, str]]:
    """Each field with a choice of words, with each word that is not its value in `example`."""
    hints = get_type_hints(make)
    of_words = [field.name for field in _fields(make) if get_origin(hints[field.name]) is Literal]
    return [(name, word) for name in of_words for word in get_args(hints[name]) if word != getattr(example, name)]


def _fields(make: Any) -> list[Field[Any]]:
    return [field for field in fields(make) if field.init]
