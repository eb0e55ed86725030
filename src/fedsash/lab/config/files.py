"""The content of TOML files as tables: reading, merging, and changing single values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...basics.errors import one_line
from ...basics.files import plain_file
from .errors import ConfigError

TomlTable = Mapping[str, Any]
KEY = re.compile(r"[\w-]+(\.[\w-]+)*")
"""A dotted key of an experiment, such as `local.lr`."""
SHORT = ""
"""The key, in a table, of the value that was written before in place of the table."""


def read(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file. Raises `ConfigError` if the file is missing, unreadable or not TOML."""
    try:
        return tomllib.loads(plain_file(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't be read: {one_line(error)}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is not TOML: {error}") from error


def put(table: TomlTable, key: str, value: Any) -> dict[str, Any]:
    """A copy of the table with another value under a dotted key."""
    first, _, rest = key.partition(".")
    if rest:
        value = put(_as_table(table.get(first)), rest, value)
    return {**table, first: value}


def merged(base: TomlTable, over: TomlTable) -> dict[str, Any]:
    """`base` with the values of `over`, table by table. A table with another `name` replaces the whole table."""
    result = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and not _names_another(before := _as_table(result.get(key)), value):
            value = merged(before, value)
        result[key] = value
    return result


def overridden(table: TomlTable, override: str) -> dict[str, Any]:
    """A table after `"key.key=value"`. The value is written as in TOML. If it is not TOML, it is a string."""
    name, equals, text = override.partition("=")
    if not equals or not KEY.fullmatch(name.strip()):
        raise ConfigError(f"--set {override}: must be KEY=VALUE, such as local.lr=0.05")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return put(table, name.strip(), value)


def _as_table(value: Any) -> TomlTable:
    """A value as a table that can take more keys.

    `broadcast = "ima"` with a `broadcast.start` becomes `{"" = "ima", start = ...}`.
    """
    if isinstance(value, Mapping):
        return value
    return {SHORT: value} if isinstance(value, str | int | float) else {}


def _names_another(before: TomlTable, over: TomlTable) -> bool:
    return "name" in over and over["name"] != before.get("name")
