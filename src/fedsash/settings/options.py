"""The settings of a class or a function as data: name, type, limit, default and meaning of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from .limits import Limit, limit_in, limited_hints
from .meanings import meanings
from .setting import default_of, hints_of

Make = Callable[..., Any]
"""A class whose fields, or a function whose parameters, are the keys of a table."""

REQUIRED = MISSING
"""Stands for the default of an option that has none."""


@dataclass(frozen=True)
class Option:
    """One setting: the type of its value, its limit, its default (`REQUIRED` if it has none), and what it means.

    If a table has the key `unless`, this option's default is that of its own class.
    """

    name: str
    kind: Any
    default: Any = REQUIRED
    unless: str = ""
    limit: Limit | None = None
    of: Any = None

    @property
    def meaning(self) -> str:
        """What it means, for readers of files: there None is a key that is left out. Empty if nobody says it."""
        if not isinstance(self.of, type):
            return ""
        return meanings(self.of).get(self.name, "")


@cache
def options(make: Make) -> Mapping[str, Option]:
    """The options of a thing: a dataclass's fields, or a function's parameters (`"**"`: it takes any keyword).

    They are cached: a sweep's plan asks for them thousands of times.
    """
    if is_dataclass(make) and isinstance(make, type):
        return _of_fields(make)
    return _of_parameters(make)


def _of_fields(cls: Any) -> dict[str, Option]:
    kinds = hints_of(cls)
    limits = limited_hints(cls)
    known = {}
    for field in fields(cls):
        if field.init:
            name = field.name
            unless = field.metadata.get("unless", "")
            known[name] = Option(name, kinds[name], default_of(field), unless, limit_in(limits.get(name)), cls)
    return known


def _of_parameters(function: Make) -> dict[str, Option]:
    hints = _hints(function.__init__ if inspect.isclass(function) else function)
    known = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            known["**"] = Option("**", Any, None)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            known[name] = Option(name, hints.get(name, Any), default, of=function)
    return known


def _hints(function: Make) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # a user's annotations may name things that are imported only for type checks
        return {}
