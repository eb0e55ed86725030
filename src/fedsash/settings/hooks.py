"""Functions that a base class calls if a subclass overrides them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from inspect import isfunction
from typing import Any

CLOSE = 0.8
"""How alike a name must be to one that is meant, from 0 to 1, as `difflib` counts it."""


def check_hooks(cls: type[Any], base: type[Any]) -> None:
    """Raise `TypeError` if a public function of a subclass is called almost like one of `base`, so that it is not it.

    It would never be called, and nobody would say so.
    """
    hooks = [name for name in dir(base) if not name.startswith("_") and _is_hook(getattr(base, name))]
    for name, value in vars(cls).items():
        if name.startswith("_") or not _is_hook(value) or hasattr(base, name):
            continue
        meant = _hook_meant(name, hooks)
        if meant:
            cure = f"did you mean {meant}? If not, call it _{name}"
            raise TypeError(f"{cls.__name__}.{name}: {base.__name__} has no such function; {cure}")


def is_of_library(value: object) -> bool:
    """Whether the class of a value is one of this library, so that its hooks need no watching."""
    package, _, _ = type(value).__module__.partition(".")
    library, _, _ = __name__.partition(".")
    return package == library


def _hook_meant(name: str, hooks: Sequence[str]) -> str:
    """The hook that somebody means who writes this name, as `on_round` for `round`; empty if none is like it."""
    without_prefix = name.removeprefix("on_")
    if without_prefix in hooks:
        return without_prefix
    close = get_close_matches(name, hooks, 1, CLOSE)
    return close[0] if close else ""


def _is_hook(value: object) -> bool:
    return isfunction(value) or isinstance(value, property)
