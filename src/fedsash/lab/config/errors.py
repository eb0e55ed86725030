"""Errors of an experiment file: one line that names the file, the key, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...basics.errors import one_line


class ConfigError(ValueError):
    """What is wrong with an experiment, in one line."""


@contextmanager
def located(place: str) -> Iterator[None]:
    """Turn a `ValueError` that names `Class.field` into a `ConfigError` that names the key below `place`."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        line = one_line(error)
        if named := re.match(r"[A-Z]\w*\.(?=[a-z])|(?=[a-z]\w* = )", line):
            line = join(place, line[named.end() :])
        elif place and not line.startswith(f"{place}."):
            line = f"{place}: {line}"
        raise ConfigError(line) from error


@contextmanager
def prefixed(path: str | Path) -> Iterator[None]:
    """Begin every `ConfigError` with the name of the file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error.__cause__


def join(place: str, key: str) -> str:
    """The key of a table, as an error names it: `local.lr`."""
    return f"{place}.{key}" if place else key
