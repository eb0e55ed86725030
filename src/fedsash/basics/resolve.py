"""A user's own things, named by their place."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import SettingError


def resolve(place: str, owner: str = "", field: str = "name") -> Any:
    """What `"package.module:name"` stands for. Raises `SettingError`, which names `owner` and `field`, if nothing."""
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
