"""What an experiment file can name, and the options of each thing: the rooms' registries side by side."""

from __future__ import annotations

import difflib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...aggregation import AGGREGATIONS, Aggregation
from ...averages import AVERAGES, Average
from ...data import DATASETS, PARTITIONS
from ...data.partitions.common import Rule
from ...executors import ENGINES, Engine
from ...methods import METHODS, Method
from ...models import MODELS
from ...sampling import SAMPLINGS, Sampling
from ...schedules import LOCAL_SCHEDULES, SCHEDULES, LocalSchedule, Schedule
from ...servers import SERVERS, Server
from .errors import ConfigError

Make = Callable[..., Any]
"""A class whose fields, or a function whose parameters, are the keys of a table."""


@dataclass(frozen=True)
class Room:
    """Things by name.

    `key` is the experiment file's table that chooses one of them by its `name`; a user's own, given as
    `"package.module:Class"`, must be a dataclass below `base`. Models are functions, and no dataclasses.
    """

    key: str
    things: Mapping[str, Make]
    base: type = object

    def find(self, name: Any) -> Make:
        """The thing of that name; `ValueError` if there is none, if it can't be imported or is of another kind."""
        if isinstance(name, str) and name in self.things:
            return self.things[name]
        what = "function" if self.key == "model" else "Class"
        field = f"name = {show(name)}"
        if not isinstance(name, str) or ":" not in name:
            elsewhere = [room.key for room in ROOMS.values() if name in room.things]
            close = suggestion(str(name), self.things)
            hint = f"; did you mean {close}?" if close else ""
            hint = f"; there is {elsewhere[0]}.name = {show(name)}" if elsewhere else hint
            raise ValueError(f'{field}: must be one of {", ".join(self.things)}, or "package.module:{what}"{hint}')
        try:
            make = pkgutil.resolve_name(name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"{field}: can't be imported: {error}") from error
        if self.key == "model":
            valid, right = callable(make), "a function that returns an nn.Module"
        else:
            valid, right = is_dataclass(make) and issubclass(make, self.base), "a dataclass"  # type: ignore[arg-type]
            right += "" if self.base is object else f" that extends {self.base.__module__}.{self.base.__name__}"
        if not valid:
            raise ValueError(f"{field}: must be {right}")
        return make  # type: ignore[no-any-return]

    def name_of(self, thing: object) -> str:
        """The name by which `find` gives the class of `thing`."""
        make = type(thing)
        return next((name for name, m in self.things.items() if m is make), f"{make.__module__}:{make.__qualname__}")


ROOMS: dict[str, Room] = {
    "methods": Room("method", METHODS, Method),
    "aggregations": Room("aggregation", AGGREGATIONS, Aggregation),
    "servers": Room("server", SERVERS, Server),
    "averages": Room("averages.*", AVERAGES, Average),
    "samplings": Room("sampling", SAMPLINGS, Sampling),
    "schedules": Room("local.schedule", SCHEDULES, Schedule),
    "local_schedules": Room("local.local_schedule", LOCAL_SCHEDULES, LocalSchedule),
    "partitions": Room("partition", PARTITIONS),
    "models": Room("model", MODELS),
    "datasets": Room("data", DATASETS),
    "engines": Room("engine", ENGINES, Engine),
}

REQUIRED = MISSING
"""The default of an option that has none."""


@dataclass(frozen=True)
class Option:
    """One key of a table: the type of its value, and its default (`REQUIRED` if there is none)."""

    name: str
    kind: Any
    default: Any = REQUIRED


def options(make: Make) -> dict[str, Option]:
    """The options of a thing by name: a dataclass's fields, otherwise a function's parameters.

    A registered model is given the shape of its input and the number of classes: these are no options. A function
    that takes any keyword has an option `"**"`.
    """
    if is_dataclass(make):
        hints = get_type_hints(make)
        return {f.name: Option(f.name, hints[f.name], _default(f)) for f in fields(make) if f.init}
    hints = _hints(make.__init__ if inspect.isclass(make) else make)
    given = ("shape", "classes") if make in MODELS.values() else ()
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found["**"] = Option("**", Any, None)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name not in given:
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            found[name] = Option(name, hints.get(name, Any), default)
    return found


def summary(make: Make) -> str:
    """The first line of a thing's docstring."""
    return (inspect.getdoc(make) or "(no description)").splitlines()[0]


def describe(kind: Any) -> str:
    """A type in words: "a number", "a list of integers"; of a union, what TOML can write."""
    return _words(kind) or f"of type {getattr(kind, '__name__', kind)}"


def _words(kind: Any, many: bool = False) -> str:
    one, several = _WORDS.get(kind, ("", ""))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        one = several = " or ".join(show(argument) for argument in arguments)
    elif origin in (Union, UnionType):
        words = [_words(argument, many) for argument in arguments if argument is not NoneType]
        one = several = " or ".join(word for word in words if word)
    elif origin in (tuple, list, Sequence):
        inner = _words(arguments[0], many=True)
        one, several = f"a list of {inner}", f"lists of {inner}"
    elif origin in (dict, Mapping):
        one, several = "a table", "tables"
    return several if many else one


_WORDS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("true or false", "true or false"),
    Any: ("a value", "values"),
    Rule: ("a table", "tables"),
}


def show(value: Any) -> str:
    """A value as an experiment file has it, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {show(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(show(inner) for inner in value) + "]"
    if isinstance(value, float) or is_dataclass(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that is close to `name`, as `batch` is to `batch_size` and `lr` to `learning_rate`, or nothing."""
    known = list(known)
    initials = "".join(word[:1] for word in name.split("_"))
    close = difflib.get_close_matches(name, known, n=1) or [k for k in known if k == initials]
    return close[0] if close else ""


def check_known(name: Any, names: Iterable[str], what: str) -> None:
    """Raise `ConfigError`, which begins with `what`, unless the name is one of them."""
    names = list(names)
    if name not in names:
        close = suggestion(str(name), names)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(names)}"
        raise ConfigError(f"{what} {name}; {hint}")


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _hints(function: Make) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # a user's annotations may name what is not imported when the program runs
        return {}
