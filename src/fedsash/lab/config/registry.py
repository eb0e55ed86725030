"""A registry of things that an experiment file can name, and the options of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from ...settings.errors import check
from ...settings.resolve import resolve
from ...settings.setting import default_of, hints_of

Make = Callable[..., Any]
"""A class whose fields, or a function whose parameters, are the keys of a table."""

REQUIRED = MISSING
"""Stands for the default of an option that has none."""


@dataclass(frozen=True)
class Option:
    """One key of a table: the type of its value, and its default (`REQUIRED` if there is none).

    If a table has the key `unless`, this option's default is that of its own class.
    """

    name: str
    kind: Any
    default: Any = REQUIRED
    unless: str = ""


@dataclass(frozen=True)
class Registry:
    """Things by name: classes that extend `base`.

    `key` is the table of the experiment file that chooses one of them by its `name`. A user's own dataclass that
    extends `base` is written as `"package.module:Class"`.
    """

    key: str
    things: Mapping[str, Make]
    base: type

    def find(self, name: Any) -> Make:
        """The thing of that name. `SettingError` if it is missing, can't be imported, or doesn't extend `base`."""
        if isinstance(name, str) and name in self.things:
            return self.things[name]
        check(isinstance(name, str) and ":" in name, "name", name, self.right)
        make: Make = resolve(name)
        right = f"must be a dataclass that extends {self.base.__module__}.{self.base.__qualname__}"
        check(is_dataclass(make) and isinstance(make, type) and issubclass(make, self.base), "name", name, right)
        right = "must have no field called name: in a file, name chooses the class"
        check("name" not in options(make), "name", name, right)
        return make

    def chosen(self, table: Mapping[str, Any]) -> str | None:
        """The name of the thing that a table without a name means: a field of it, marked `chooses`, takes the value.

        None if the table has no such field. Raises `SettingError` if no thing takes the value.
        """
        taken: dict[str, dict[str, str]] = {}
        for name, make in self.things.items():
            for f in fields(make) if is_dataclass(make) else ():
                if f.metadata.get("chooses"):
                    taken.setdefault(f.name, {}).update(dict.fromkeys(get_args(hints_of(make)[f.name]), name))
        for key in taken.keys() & table.keys():
            value = table[key]
            right = f"must be {' or '.join(map(repr, taken[key]))}"
            check(isinstance(value, str) and value in taken[key], key, value, right)
            return taken[key][value]
        return None

    def options(self, name: Any) -> Mapping[str, Option]:
        """The options of the thing of that name."""
        return options(self.find(name))

    def made(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The object that a table describes."""
        return self.find(name)(**arguments)

    def name_of(self, thing: Any) -> str:
        """The name under which `find` returns the class of `thing`."""
        make = type(thing)
        return next((name for name, m in self.things.items() if m is make), f"{make.__module__}:{make.__qualname__}")

    def settings(self, thing: Any) -> Any:
        """The object whose attributes are the defaults for options that a table leaves out."""
        return thing

    @property
    def right(self) -> str:
        """What a name must be."""
        return f'must be one of {", ".join(self.things)}, or "package.module:Class"'


@cache
def options(make: Make) -> Mapping[str, Option]:
    """The options of a thing: a dataclass's fields, or a function's parameters (`"**"`: it takes any keyword).

    They are cached: a sweep's plan asks for them thousands of times.
    """
    if is_dataclass(make):
        hints = hints_of(make)
        return {
            f.name: Option(f.name, hints[f.name], default_of(f), f.metadata.get("unless", ""))
            for f in fields(make)
            if f.init
        }
    hints = _hints(make.__init__ if inspect.isclass(make) else make)
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found["**"] = Option("**", Any, None)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            found[name] = Option(name, hints.get(name, Any), default)
    return found


def _hints(function: Make) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # a user's annotations may name things that are imported only for type checks
        return {}
