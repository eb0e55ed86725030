"""Functions that a base class calls if a subclass overrides them."""

from __future__ import annotations

from difflib import get_close_matches
from inspect import isfunction
from typing import Any

CLOSE = 0.8
"""How alike a name must be to one that is meant, from 0 to 1, as `difflib` counts it."""


def check_hooks(cls: type[Any], base: type[Any]) -> None:
    """Raise `TypeError` if a public function of a subclass is called almost like one of `base`, so that it is not it.

    It would never be called, and nobody would say so.
    """
    known = [name for name in dir(base) if not name.startswith("_") and _is_hook(getattr(base, name))]
    for name, own in vars(cls).items():
        if name.startswith("_") or not _is_hook(own):
            continue
        meant = name.removeprefix("on_")
        close = [meant] if meant in known else get_close_matches(name, known, 1, CLOSE)
        if close and not hasattr(base, name):
            right = f"did you mean {close[0]}? If not, call it _{name}"
            raise TypeError(f"{cls.__name__}.{name}: {base.__name__} has no such function; {right}")


def _is_hook(value: object) -> bool:
    return isfunction(value) or isinstance(value, property)
