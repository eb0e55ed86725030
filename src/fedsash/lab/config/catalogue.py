"""What an experiment file can say, found by the words that a user may try: `fedsash list`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...settings.errors import ConfigError, shortened
from ...settings.options import options
from .keys import Key, keys, keys_of
from .registries import REGISTRIES, Registry, find
from .words import about, suggestion, summary

Entry = Mapping[str, Any]
"""Plain data: names and their meanings as `things`, a table or a thing with its `keys`, or one key with `takes`."""


def everything() -> list[Entry]:
    """The keys at the top of an experiment file, and every registry with its things."""
    top = {key.path: key.meaning for key in keys() if "." not in key.path}
    return [{"key": "an experiment file", "things": top}, *map(_registry, REGISTRIES.values())]


def found(words: Sequence[str]) -> list[Entry]:
    """What one or two words mean: `methods`, `methods scaffold`, `scaffold`, `local`, `local.lr`, `local lr` or `lr`.

    Singular and plural are the same. Raises `ConfigError`, which suggests a similar word, if they mean nothing.
    """
    first, *rest = words
    registry = _registry_called(first)
    if registry is not None and rest:
        of_table = [] if rest[0] in registry.things else _at(f"{registry.key}.{rest[0]}")
        return of_table or [_thing(registry, rest[0])]
    if registry is not None:
        return [_registry(registry)]
    path = ".".join(words)
    entries = _at(path) or [*_things(path), *_keys(path)]
    if entries:
        return entries
    close = suggestion(path, _words())
    hint = f"did you mean {close}?" if close else "see fedsash list"
    raise ConfigError(f"nothing is called {shortened(path)}; {hint}")


def names() -> dict[str, list[str]]:
    """The words that `found` takes first, each with the words that may follow it."""
    tables: dict[str, list[str]] = {key.path: [] for key in keys() if not key.thing and "NAME" not in key.path}
    for key in keys():
        if key.table is not None and key.path in tables:
            tables[key.path] = [inner.name for inner in _inside(key)]
    return {title: list(registry.things) for title, registry in REGISTRIES.items()} | tables


def _registry_called(word: str) -> Registry | None:
    """The registry with this title, or at this key."""
    for title, registry in REGISTRIES.items():
        if _singular(word) in (_singular(title), _singular(_place(registry))):
            return registry
    return None


def _place(registry: Registry) -> str:
    return registry.key.removesuffix(".NAME")


def _singular(word: str) -> str:
    """A word without the ending of the plural."""
    return word.removesuffix("s")


def _at(path: str) -> list[Entry]:
    """The tables or keys at a dotted path."""
    return _entries(key for key in keys() if _singular(key.path) == _singular(path))


def _keys(name: str) -> list[Entry]:
    """The tables and keys of that name, wherever they are."""
    return _entries(key for key in keys() if _singular(key.name) == _singular(name))


def _things(name: str) -> list[Entry]:
    """The things of that name in all registries."""
    return [_thing(registry, name) for registry in REGISTRIES.values() if name in registry.things]


def _entries(some: Iterable[Key]) -> list[Entry]:
    """Tables, then other keys. A key that several things have with one default is one entry."""
    tables: list[Entry] = []
    others: dict[tuple[str, str], Any] = {}
    for key in some:
        if key.table is not None:
            tables.append(_table(key.path, key.table, _inside(key)))
            continue
        entry = others.setdefault((key.path, key.default), _key(key) | {"of": []})
        if key.thing:
            entry["of"].append(key.thing)
    return [*tables, *others.values()]


def _inside(key: Key) -> list[Key]:
    return keys_of(key.path, key.table, options(key.table), key.option.default)


def _registry(registry: Registry) -> Entry:
    """The things of a registry, beginning with the one that a file has without naming one."""
    things = {}
    default = _default(registry)
    if default is not None:
        things[default] = summary(registry.things[default])
    for name, make in registry.things.items():
        things[name] = summary(make)
    return {"key": f"{registry.key}.name", "things": things}


def _default(registry: Registry) -> str | None:
    """The name of the thing that is the default at the registry's key; None if a file without it has none."""
    for key in keys():
        if key.path == registry.key and isinstance(key.option.default, registry.base):
            return registry.name_of(key.option.default)
    return None


def _thing(registry: Registry, name: str) -> Entry:
    make = find(registry, name, registry.key)
    its = keys_of(registry.key, make, registry.options(name))
    return _table(registry.key, make, its) | {"name": name}


def _table(path: str, make: Any, inside: Iterable[Key]) -> dict[str, Any]:
    return {"key": path, "about": about(make), "keys": [_key(key) for key in inside]}


def _key(key: Key) -> dict[str, Any]:
    return {"key": key.path, "takes": key.takes, "default": key.default, "meaning": key.meaning}


def _words() -> list[str]:
    """All words that mean something."""
    places = [_place(registry) for registry in REGISTRIES.values()]
    things = [name for registry in REGISTRIES.values() for name in registry.things]
    of_keys = {word for key in keys() for word in (key.path, key.name)}
    return [*REGISTRIES, *places, *things, *of_keys]
