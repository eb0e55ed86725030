"""Users' own functions and classes, by their place `"package.module:name"`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import SettingError


def resolve(place: str, owner: str = "", field: str = "name") -> Any:
    """The object at `"package.module:name"`. Raises `SettingError` for `owner.field` if it can't be imported."""
    module, _, path = place.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise SettingError(owner, field, place, "must be 'package.module:name'")
    try:
        found = import_module(module)
    except ImportError as error:
        raise SettingError(owner, field, place, f"can't be imported: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise SettingError(owner, field, place, f"can't be imported: module {module!r} has no attribute {path!r}")
        found = getattr(found, part)
    return found
