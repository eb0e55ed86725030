"""Errors of an experiment file: one line that names the file, the key, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...settings.errors import (
    ConfigError,
    FedsashError,
    LibraryError,
    ModelError,
    SettingError,
    brief,
    one_line,
    shortened,
)
from .words import describe, shown, suggestion

TABLES = {"Evaluation": "evaluation", "LocalTraining": "local", "Personal": "personal"}
"""The tables of settings that are checked when all parts of an experiment come together."""


@contextmanager
def located(place: str) -> Iterator[None]:
    """Turn an error of a user from the `with` block into a `ConfigError` that names the key below `place`.

    Without a place, a model's error is of the key `model`, and a setting's of the table of its class.
    """
    try:
        yield
    except (ConfigError, LibraryError):
        raise
    except SettingError as error:
        raise _of_setting(error, place) from error
    except (FedsashError, OSError) as error:
        line = shortened(one_line(error), 300)
        if not place and isinstance(error, ModelError):
            place = "model"
        if place:
            line = f"{place}: {line}"
        raise ConfigError(line, place) from error


def _of_setting(error: SettingError, place: str) -> ConfigError:
    """The error of a setting, with its key and the words of a file in place of Python's."""
    key = _key(error, place)
    if key and error.kind is not None:
        line = f"{key} = {shown(error.value)}: must be {describe(error.kind)}"
    elif key:
        line = f"{key} = {brief(error.value)}: {error.right}"
    elif place:
        line = f"{place}: {error}"
    else:
        line = str(error)
    return ConfigError(" ".join(line.split()), key or place)


def _key(error: SettingError, place: str) -> str:
    """The key of the setting. Empty if it is not a setting of the table at `place`."""
    is_path = not error.owner and not re.fullmatch(r"\w+", error.field)
    if is_path and error.field.startswith(f"{place}."):
        return error.field
    if is_path:
        return ""
    return join(place or TABLES.get(error.owner, ""), error.field)


@contextmanager
def prefixed(path: str | Path) -> Iterator[None]:
    """Begin every `ConfigError` with the name of the file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error), error.key, str(path)) from error.__cause__


def join(place: str, key: str) -> str:
    """The key of a table, as an error names it: `local.lr`."""
    if len(key) > 60:
        key = shortened(key, 60)
    if not place:
        return key
    return f"{place}.{key}"


def check_known(name: Any, names: Iterable[str], what: str) -> None:
    """Raise `ConfigError`, with a message that begins with `what`, unless `name` is one of `names`."""
    names = list(names)
    if name in names:
        return
    similar = suggestion(str(name), names)
    hint = f"did you mean {similar}?" if similar else f"there are {', '.join(names)}"
    raise ConfigError(f"{what} {shortened(str(name))}; {hint}", str(name))
