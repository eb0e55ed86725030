"""What every setting says of itself: type, default, meaning, and what it makes of bad values. As a script, records it:

PYTHONPATH=tests:. python tests/support/settings_record.py

The record was made before settings were described as data, by asking constructors. A limit that is lost, or a message
that is worse, is a difference.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from inspect import isabstract
from pathlib import Path
from typing import Any

from torture.schema import Key, keys

from fedsash.lab.config import parse
from fedsash.lab.config.words import describe
from fedsash.settings.errors import FedsashError, SettingError
from fedsash.settings.options import options
from fedsash.settings.setting import default_of, hints_of
from support.defaults import settings_classes

RECORDED = Path(__file__).parents[1] / "settings" / "settings.json"

VALUES: dict[str, Any] = {
    **{str(number): number for number in (-(10**12), -1, 0, 1, 2, 10**6, 10**12, 2**63)},
    **{str(number): number for number in (-1e300, -0.5, 1e-320, 0.5, 0.999, 1.5, 1e300, math.nan, math.inf)},
    **{repr(value): value for value in (True, None, "x", "", "auto", [], {}, [0], [1, 2], ["x"], {"a": 1}, {"a": "x"})},
    "object()": object(),
}
"""Values by what the record calls them: right ones among them, so that a limit that moves is seen on both sides."""
IN_FILES: dict[str, Any] = {
    repr(value): value
    for value in (-1, 0, 10**12, 0.5, -0.5, math.nan, True, "x", [], [1], {}, {"x": 1}, {"name": "x"})
}
"""Values in files."""
FITTING: dict[Any, Any] = {int: 2, float: 0.5, str: "x"}
"""Values for other fields that have no default."""


def described() -> dict[str, dict[str, Any]]:
    """Each field of each class of settings: its type, default and meaning, and the values by what comes of them."""
    classes = {name: cls for name, cls in settings_classes().items() if is_dataclass(cls) and not isabstract(cls)}
    return {name: dict(_fields(cls)) for name, cls in classes.items()}


def in_files() -> dict[str, dict[str, str]]:
    """Each key of an experiment file with what it needs: what reading makes of some values, "taken" or the line.

    Of a line that begins with the key and its value, what would be right.
    """
    return {_called(key): _read(key) for key in keys()}


def _called(key: Key) -> str:
    """The key's place, and the things that have to be chosen for it."""
    chosen = [f"{'.'.join(place)}={value}" for place, value in key.needs.items() if place[-1] == "name"]
    return " ".join([".".join(key.place), *chosen])


def _read(key: Key) -> dict[str, str]:
    outcomes: dict[str, list[str]] = {}
    for name, value in IN_FILES.items():
        table: dict[str, Any] = {}
        for place, needed in {**key.needs, key.place: value}.items():
            put(table, place, needed)
        try:
            parse(table)
            outcome = "taken"
        except FedsashError as error:
            place, _, right = str(error).partition(": ")
            outcome = right if place.startswith(f"{'.'.join(key.place)} = ") else str(error)
        except Exception as error:
            outcome = f"{type(error).__name__}, which is no refusal"
        outcomes.setdefault(outcome, []).append(name)
    return {outcome: ", ".join(values) for outcome, values in outcomes.items()}


def put(table: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    """Put a value at a place of a table, and tables on the way."""
    for part in place[:-1]:
        inner = table.get(part)
        if not isinstance(inner, dict):
            inner = table[part] = {}
        table = inner
    table[place[-1]] = value


def _fields(cls: Any) -> Iterator[tuple[str, Any]]:
    hints = hints_of(cls)
    required = {f.name: FITTING.get(hints[f.name]) for f in fields(cls) if f.init and default_of(f) is MISSING}
    for field in fields(cls):
        if not field.init:
            continue
        default = default_of(field)
        outcomes: dict[str, list[str]] = {}
        for name, value in VALUES.items():
            outcomes.setdefault(_outcome(cls, field.name, required, value), []).append(name)
        yield (
            field.name,
            {
                "type": describe(hints[field.name]),
                "default": "required" if default is MISSING else _text(default),
                "meaning": options(cls)[field.name].meaning,
                "values": {outcome: ", ".join(values) for outcome, values in outcomes.items()},
            },
        )


def _outcome(cls: Any, name: str, required: dict[str, Any], value: Any) -> str:
    """What comes of a value: "taken", what it was converted to, or the error's line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = cls(**{**required, name: value})
        except SettingError as error:
            place = "" if (error.owner, error.field) == (cls.__name__, name) else f"{error.owner}.{error.field}: "
            return place + error.right
        except FedsashError as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:
            return f"{type(error).__name__}, which is no refusal"
    kept = getattr(made, name)
    same = False
    with suppress(Exception):
        same = kept is value or bool(kept == value) or (kept != kept and value != value)
    return "taken" if same and type(kept) is type(value) else f"taken as {_text(kept)}"


def _text(value: Any) -> str:
    """A value as a text that is the same in every process."""
    return repr(value).split(" at 0x")[0] if " at 0x" in repr(value) else repr(value)


def record() -> dict[str, Any]:
    """All of it."""
    return {"in Python": described(), "in files": in_files()}


if __name__ == "__main__":
    made = record()
    RECORDED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print(f"{RECORDED}: {sum(map(len, made['in Python'].values()))} fields, {len(made['in files'])} keys of files")
