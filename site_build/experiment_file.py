"""The page of all keys of experiment files and sweep files, from what reads these files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from fedsash.lab.config.keys import Key, keys
from fedsash.lab.config.registries import REGISTRIES, Registry, registry_of
from fedsash.lab.config.tables import table_in
from fedsash.lab.config.words import show, summary
from fedsash.lab.sweeps import axes

from .markdown import code, table

TOP = """\
# Experiment file

An experiment file is TOML. Every key has a default; an empty file is a small experiment on digits. This page is made
from the code that reads the file. The terminal says the same: `fedsash list`, `fedsash list methods fedprox`.

A table with a `name` chooses one of several things, and its other keys are those of this thing. A thing of
[your own](../how-to/extend.md) is named by its place, `"package.module:Class"`. `NAME` in a key stands for a name of
your own choice.
"""
SWEEP_FILE = """\
## Sweep files

A sweep file is an experiment and what varies in it. [Many runs](../how-to/sweeps.md) has an example.
"""


def page() -> str:
    """The page: a section for each table, then sweep files."""
    registries = {registry.key: registry for registry in REGISTRIES.values()}
    parts = [TOP, "## The file itself"]
    for place, keys_of_table in by_table().items():
        if place:
            parts.append(f"## `[{place}]` {{#{anchor(place)}}}")
        if place in registries:
            parts += _things(registries[place], keys_of_table)
        else:
            parts.append(keys_table(keys_of_table))
    parts += [SWEEP_FILE, meanings(axes.KEYS)]
    return "\n\n".join(parts) + "\n"


@cache
def by_table() -> dict[str, list[Key]]:
    """The keys of each table, by its place; those of the file itself come first.

    A table of things that stands in a second place, such as the partition inside another one, is told once.
    """
    repeated = set()
    for key in keys():
        registry, place = _table(key)
        if registry is not None and place != registry.key:
            repeated.add(place)
    keys_by_table: dict[str, list[Key]] = {}
    for key in keys():
        place = key.path.rpartition(".")[0]
        if place not in repeated:
            keys_by_table.setdefault(place, []).append(key)
    return keys_by_table


def anchor(*names: str) -> str:
    """The place of a section on the page."""
    return "-".join(re.sub(r"\W+", "-", name.lower()).strip("-") for name in names)


def keys_table(shown: Iterable[Key]) -> str:
    """A table of keys."""
    rows = [(code(key.name), takes(key), code(default(key)), key.meaning) for key in shown]
    return table(("key", "takes", "default", "meaning"), rows)


def meanings(known: Mapping[str, str]) -> str:
    """A table of keys that have a meaning only."""
    return table(("key", "meaning"), [(code(key), what) for key, what in known.items()])


def takes(key: Key) -> str:
    """What the value of a key may be: its type with its limits, or the table that stands there."""
    registry, place = _table(key)
    if place is None:
        return key.takes
    if registry is not None:
        place = registry.key
    if place not in by_table():
        return "a table"
    return f"[`[{place}]`](#{anchor(place)})"


def default(key: Key) -> str:
    """The default of a key; of a table that chooses a thing, the thing's name."""
    registry, place = _table(key)
    if place is None:
        return key.default
    value = key.option.default
    if registry is None or not value:
        return ""
    return f"name = {show(registry.name_of(value))}"


def _table(key: Key) -> tuple[Registry | None, str | None]:
    """The table that the value of a key may be: the registry whose things it names, and its place; None without one."""
    kind, place = table_in(key.option.kind, key.path)
    if kind is None:
        return None, None
    return registry_of(kind), place


def _things(registry: Registry, keys_of_table: list[Key]) -> Iterator[str]:
    """The things that a table chooses from, the keys that all of them have, and those of each."""
    yield f"`{registry.key}.name` chooses one of these:"
    yield table(("name", "what it is"), [(code(name), summary(make)) for name, make in registry.things.items()])
    by_thing: dict[str, list[Key]] = {name: [] for name in registry.things}
    for key in keys_of_table:
        if key.thing in by_thing:
            by_thing[key.thing].append(key)
    rows = [{_row(key) for key in of_thing} for of_thing in by_thing.values()]
    common = set.intersection(*rows)
    first = next(iter(by_thing.values()))
    shared = [key for key in first if _row(key) in common]
    if shared:
        yield "All of them have these keys:"
        yield keys_table(shared)
    for name, of_thing in by_thing.items():
        rest = [key for key in of_thing if _row(key) not in common]
        if rest:
            yield f"### `name = {show(name)}` {{#{anchor(registry.key, name)}}}"
            yield keys_table(rest)


def _row(key: Key) -> tuple[str, str, str, str]:
    """What a key's row says: two things have a key in common if theirs are equal."""
    return key.name, takes(key), default(key), key.meaning
