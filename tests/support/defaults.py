"""The defaults of all settings, which fingerprints leave out. Run as a script it records them:

python tests/support/defaults.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from fedsash.lab.config import Experiment
from fedsash.lab.config.network import NetworkExperiment
from fedsash.lab.config.registries import REGISTRIES
from fedsash.settings.fingerprint import DEFAULTS, text
from fedsash.settings.setting import default_of, hints_of, is_settings

RECORDED = Path(__file__).parents[1] / "settings" / "defaults.json"


def settings_classes() -> dict[str, type]:
    """All classes of the library that can be in a fingerprint of settings, by their qualified names."""
    waiting: list[Any] = [Experiment, NetworkExperiment]
    for registry in REGISTRIES.values():
        waiting += [thing for thing in registry.things.values() if is_settings(thing)]
    classes: dict[str, type] = {}
    while waiting:
        cls = waiting.pop()
        if cls.__qualname__ in classes:
            assert classes[cls.__qualname__] is cls, f"two classes are called {cls.__qualname__}"
            continue
        classes[cls.__qualname__] = cls
        for hint in hints_of(cls).values():
            waiting += [each for each in members(hint) if is_settings(each)]
    return dict(sorted(classes.items()))


def members(hint: Any) -> Iterator[Any]:
    """The types in a hint, such as those of a union or of a tuple's elements."""
    if get_origin(hint) in (Union, UnionType, tuple, list, dict) or get_args(hint):
        for each in get_args(hint):
            yield from members(each)
    else:
        yield hint


def defaults() -> dict[str, dict[str, str]]:
    """The text of each default by class and field."""
    table: dict[str, dict[str, str]] = {}
    for name, cls in settings_classes().items():
        known = {}
        for field in fields(cls) if hasattr(cls, "__dataclass_fields__") else ():
            default = default_of(field)
            if field.init and default is not MISSING:
                known[field.name] = text(default)
        table[name] = known
    return table


def main() -> None:
    """Record the defaults. Refuses changed ones under the number that they had."""
    now = defaults()
    if RECORDED.exists():
        recorded = json.loads(RECORDED.read_text())
        if recorded["number"] == DEFAULTS and (changed := changes(recorded["defaults"], now)):
            raise SystemExit(f"raise DEFAULTS in settings/fingerprint.py first: {'; '.join(changed)}")
    RECORDED.write_text(json.dumps({"number": DEFAULTS, "defaults": now}, indent=1) + "\n")


def changes(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """The recorded defaults that the code gives otherwise. A class or a field that is new or gone changes nothing."""
    lines = []
    for name, known in before.items():
        for field, default in known.items():
            after = now.get(name, {}).get(field, default)
            if after != default:
                lines.append(f"{name}.{field} was {default} and is {after}")
    return lines


if __name__ == "__main__":
    main()
