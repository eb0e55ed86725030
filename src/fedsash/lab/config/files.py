"""The content of TOML files as tables: reading, merging, and changing single values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

from ...data import PARTITIONS
from ...settings.checks import LEAST_INTEGER, MOST_INTEGER, TOO_WIDE
from ...settings.errors import ConfigError, one_line, shortened
from ...settings.options import options
from ...system.paths import is_utf8, plain_file
from .errors import join
from .words import shown

TomlTable = Mapping[str, Any]
KEY = re.compile(r"[\w-]+(\.[\w-]+){0,15}")
"""A dotted key of an experiment, such as `local.lr`."""
BACKSLASHES = ("Unescaped '\\'", "Invalid hex value")
"""What the reader of TOML says of a backslash in a text."""
DEEPEST = 20
"""How deep lists and tables may lie in each other."""
SHORT = ""
"""The key, in a table, of the value that was written before in place of the table."""


def read(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file. Raises `ConfigError` if the file is missing, unreadable or not TOML."""
    try:
        table = tomllib.loads(plain_file(path).read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError("there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't be read: {one_line(error)}") from error
    except ValueError as error:  # not TOML, or an integer of more than 4,300 digits
        line = f"is not TOML: {shortened(one_line(error), 200)}"
        if any(words in str(error) for words in BACKSLASHES):
            line += "; write a path of Windows with / or in single quotes"
        raise ConfigError(line) from error
    except RecursionError:
        raise ConfigError(f"is nested deeper than {DEEPEST} levels") from None
    check_content(table)
    return table


def check_content(table: TomlTable) -> None:
    """Raise `ConfigError` for what no setting is: integers beyond 64 bits, dates, bytes that are no text,
    and what is nested too deeply."""
    to_check: list[tuple[str, Any, int]] = [("", table, 0)]  # no recursion: a hostile file may be as deep as it likes
    while to_check:
        place, value, depth = to_check.pop()
        if depth > DEEPEST:
            raise ConfigError(f"{shortened(place)} is nested deeper than {DEEPEST} levels", place)
        if isinstance(value, int) and not LEAST_INTEGER <= value <= MOST_INTEGER:
            raise ConfigError(f"{place}: {TOO_WIDE}", place)
        if isinstance(value, date | time):
            raise ConfigError(
                f"{place} = {value}: is a date or a time, which no setting is; as a text it has quotes", place
            )
        if isinstance(value, str) and not is_utf8(value):
            cure = "is no text in UTF-8, as an experiment must be: rename the file or folder"
            raise ConfigError(f"{place} = {shown(value)}: {cure}", place)
        if isinstance(value, Mapping):
            to_check += [(join(place, str(key)), inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            to_check += [(place, inner, depth + 1) for inner in value]


def put(table: TomlTable, key: str, value: Any) -> dict[str, Any]:
    """A copy of the table with another value under a dotted key.

    A value that is a table without `name` changes its keys alone; an empty one, or one with a `name`, takes the place
    of the table that is there. A new partition keeps the number of clients.
    """
    first, _, rest = key.partition(".")
    before = _as_table(table.get(first))
    if rest:
        value = put(before, rest, value)
    elif isinstance(value, Mapping) and value and "name" not in value:
        value = merged(before, value)
    elif isinstance(value, Mapping):
        value = {**_number_of_clients(first, before, value), **value}
    return {**table, first: value}


def merged(base: TomlTable, over: TomlTable) -> dict[str, Any]:
    """`base` with the values of `over`, table by table. A table with another `name` replaces the whole table.

    Another partition has as many clients as the one before, unless it says how many.
    """
    result = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping):
            before = _as_table(result.get(key))
            if _names_another(before, value):
                value = {**_number_of_clients(key, before, value), **value}
            else:
                value = merged(before, value)
        result[key] = value
    return result


def named(table: TomlTable, usual: TomlTable) -> dict[str, Any]:
    """The table with the names of its parts that have none: those that they have in `usual`."""
    result = dict(table)
    for key, value in table.items():
        other = usual.get(key)
        if not isinstance(value, Mapping) or not isinstance(other, Mapping) or _names_another(other, value):
            continue
        result[key] = named(value, other)
        if "name" in other:
            result[key] = {"name": other["name"]} | result[key]
    return result


def without_others(table: TomlTable, wanted: TomlTable, usual: TomlTable) -> dict[str, Any]:
    """The table without its parts in which `wanted` names another thing. A part without a name has that in `usual`.

    Of another partition the number of clients is left.
    """
    result = dict(table)
    for key, value in table.items():
        other = wanted.get(key)
        common = _as_table(usual.get(key))
        if not isinstance(value, Mapping) or not isinstance(other, Mapping):
            continue
        if _names_another({"name": common.get("name")} | dict(value), other):
            result[key] = _number_of_clients(key, value, other)
        else:
            result[key] = without_others(value, other, common)
    return result


def overridden(table: TomlTable, override: str) -> dict[str, Any]:
    """A table after `"key.key=value"`. The value is written as in TOML. If it is not TOML, it is a string."""
    name, equals, text = override.partition("=")
    if not equals or not KEY.fullmatch(name.strip()):
        raise ConfigError(f"--set {shortened(' '.join(override.split()))}: must be KEY=VALUE, such as local.lr=0.05")
    if len(text.splitlines()) > 1:
        raise ConfigError(f"--set {name.strip()}: must be one line; repeat --set for another key")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    if isinstance(value, date | time):  # no setting is one, but a folder may be called so
        value = text.strip()
    return put(table, name.strip(), value)


def _as_table(value: Any) -> TomlTable:
    """A value as a table that can take more keys.

    `broadcast = "ima"` with a `broadcast.start` becomes `{"" = "ima", start = ...}`.
    """
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | int | float):
        return {SHORT: value}
    return {}


def _number_of_clients(key: str, before: TomlTable, over: TomlTable) -> dict[str, Any]:
    """The number of clients that a table `before` has, if `over` names another partition, which needs one.

    It is the federation's, and stays when only the rule changes. Empty for any other table.
    """
    if key != "partition" or "clients" not in before:
        return {}
    rule: Any = PARTITIONS.get(str(over.get("name")))
    if rule is None or "clients" not in options(rule):
        return {}
    return {"clients": before["clients"]}


def _names_another(before: TomlTable, over: TomlTable) -> bool:
    return "name" in over and over["name"] != before.get("name")
