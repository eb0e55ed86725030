"""The settings of a class or a function as data: name, type, limit, default and meaning of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from typing_extensions import Doc

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

    `unless` is the key that excludes it: a table with that key leaves this option at the default of its class. `of` is
    the class or the function that has the option.
    """

    name: str
    kind: Any
    default: Any = REQUIRED
    unless: str = ""
    limit: Limit | None = None
    of: Make | None = None

    @property
    def meaning(self) -> str:
        """What it means: the docstring below the field, or `Doc` in the parameter's type; empty if nobody says it."""
        if self.of is None:
            return ""
        if isinstance(self.of, type) and is_dataclass(self.of):
            return meanings(self.of).get(self.name, "")
        hint = _hints(self.of).get(self.name)
        for rule in getattr(hint, "__metadata__", ()):
            if isinstance(rule, Doc):
                return rule.documentation
        return ""


@cache
def options(make: Make) -> Mapping[str, Option]:
    """The options of a thing: a dataclass's fields, or a function's parameters (`"**"`: it takes any keyword).

    They are cached: a sweep's plan asks for them thousands of times.
    """
    if isinstance(make, type) and is_dataclass(make):
        return _of_fields(make)
    return _of_parameters(make)


def _of_fields(cls: Any) -> dict[str, Option]:
    kinds = hints_of(cls)
    limits = limited_hints(cls)
    known = {}
    for field in fields(cls):
        if not field.init:
            continue
        name = field.name
        unless = field.metadata.get("unless", "")
        limit = limit_in(limits.get(name))
        known[name] = Option(name, kinds[name], default_of(field), unless=unless, limit=limit, of=cls)
    return known


def _of_parameters(function: Make) -> dict[str, Option]:
    kinds = _hints(function, annotated=False)
    annotated = _hints(function)
    known = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            known["**"] = Option("**", Any, None)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            kind = kinds.get(name, Any)
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            limit = limit_in(annotated.get(name))
            known[name] = Option(name, kind, default, limit=limit, of=function)
    return known


def _hints(make: Make, annotated: bool = True) -> dict[str, Any]:
    """The types of the parameters of a function, or of a class's `__init__`, with their limits and `Doc` or without."""
    function = make.__init__ if inspect.isclass(make) else make
    try:
        return get_type_hints(function, include_extras=annotated)
    except (NameError, TypeError, AttributeError):  # they may name what is imported for type checks only
        return {}
