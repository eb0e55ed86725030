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
    listed: list[Entry] = [{"key": "an experiment file", "things": top}]
    listed += [_registry(registry) for registry in REGISTRIES.values()]
    return listed


def entries(words: Sequence[str]) -> list[Entry]:
    """What one or two words mean: `methods`, `methods scaffold`, `scaffold`, `local`, `local.lr`, `local lr` or `lr`.

    Singular and plural are the same. Raises `ConfigError`, which suggests a similar word, if they mean nothing.
    """
    registry = _registry_called(words[0])
    if registry is not None:
        if len(words) == 1:
            return [_registry(registry)]
        name = words[1]
        if name not in registry.things:
            at_key = _at(f"{registry.key}.{name}")
            if at_key:
                return at_key
        return [_thing(registry, name)]
    path = ".".join(words)
    meant = _at(path)
    if not meant:
        meant = [*_things(path), *_keys(path)]
    if meant:
        return meant
    similar = suggestion(path, _words())
    hint = f"did you mean {similar}?" if similar else "see fedsash list"
    raise ConfigError(f"nothing is called {shortened(path)}; {hint}")


def names() -> dict[str, list[str]]:
    """The words that `entries` takes first, each with the words that may follow it."""
    following = {title: list(registry.things) for title, registry in REGISTRIES.items()}
    for key in keys():
        if key.thing or "NAME" in key.path:
            continue
        following.setdefault(key.path, [])
        if key.table is not None:
            following[key.path] = [inner.name for inner in _inside(key)]
    return following


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


def _entries(some_keys: Iterable[Key]) -> list[Entry]:
    """Tables, then other keys. A key that several things have with one default is one entry."""
    tables: list[Entry] = []
    others: dict[tuple[str, str], Any] = {}
    for key in some_keys:
        if key.table is not None:
            tables.append(_table(key.path, key.table, _inside(key)))
            continue
        entry = others.setdefault((key.path, key.default), _key(key) | {"of": []})
        if key.thing:
            entry["of"].append(key.thing)
    return [*tables, *others.values()]


def _inside(key: Key) -> list[Key]:
    """The keys of the table that is the value of a key."""
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
    its_keys = keys_of(registry.key, make, registry.options(name))
    return _table(registry.key, make, its_keys) | {"name": name}


def _table(path: str, make: Any, inside: Iterable[Key]) -> dict[str, Any]:
    return {"key": path, "about": about(make), "keys": [_key(key) for key in inside]}


def _key(key: Key) -> dict[str, Any]:
    return {"key": key.path, "takes": key.takes, "default": key.default, "meaning": key.meaning}


def _words() -> list[str]:
    """All words that mean something."""
    words = list(REGISTRIES)
    words += [_place(registry) for registry in REGISTRIES.values()]
    for registry in REGISTRIES.values():
        words += registry.things
    for key in keys():
        words += [key.path, key.name]
    return list(dict.fromkeys(words))
