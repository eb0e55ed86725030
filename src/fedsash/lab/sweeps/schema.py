"""A JSON schema of experiment, network and sweep files, with which editors complete and check them.

It is of draft 4, which the TOML language server of most editors knows. What it can't say, such as keys that exclude
each other or the names of averages that are there, is left to `fedsash run`: it accepts every file that fedsash does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from ...settings.checks import short_form
from ...settings.limits import Limit
from ...settings.options import REQUIRED, Make, Option, options
from ..config.experiment import Experiment, OwnExperiment
from ..config.keys import keys_of
from ..config.network import NetworkExperiment
from ..config.registries import REGISTRIES, Registry, registry_of
from ..config.tables import plain
from ..config.words import summary
from .axes import KEYS as OF_SWEEPS

Schema: TypeAlias = dict[str, Any]
DRAFT = "http://json-schema.org/draft-04/schema#"
OWN_CODE = ".+:.+"
"""The name of code of one's own, "package.module:Class", and of models of other libraries."""


@cache
def schema() -> Schema:
    """The schema of all files: an experiment, with or without a network, or a sweep.

    A `base` of a sweep and the settings of its labels are parts of an experiment: nothing is required there.
    """
    definitions = {title: _of_registry(registry) for title, registry in REGISTRIES.items()}
    whole = _experiment()
    sweep = {
        "type": "object",
        "required": ["axes"],
        "additionalProperties": False,
        "properties": {
            "title": {"type": "string", "description": OF_SWEEPS["title"]},
            "base": {"description": OF_SWEEPS["base"], "anyOf": [{"type": "string"}, {"type": "object"}]},
            "axes": {
                "type": "object",
                "description": OF_SWEEPS["axes"],
                "additionalProperties": {
                    "anyOf": [
                        {"type": "array", "minItems": 1},
                        {"type": "object", "additionalProperties": {"type": "object"}},
                    ]
                },
            },
            "zip": {
                "type": "array",
                "description": OF_SWEEPS["zip"],
                "items": {"type": "array", "items": {"type": "string"}},
            },
        },
    }
    return {
        "$schema": DRAFT,
        "title": "A file of fedsash: an experiment, or a sweep over experiments",
        "anyOf": [whole, sweep],
        "definitions": definitions,
    }


def text() -> str:
    """The schema as JSON."""
    return json.dumps(schema(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _experiment() -> Schema:
    """The schema of an experiment, with the keys of networks and of federations that are made in Python."""
    properties: dict[str, Schema] = {}
    for make in (Experiment, NetworkExperiment, OwnExperiment):
        more = {name: option for name, option in options(make).items() if name not in properties}
        properties |= _properties(make, more, make())
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _of_registry(registry: Registry) -> Schema:
    """The schema of a table that chooses a thing by its name: one for each thing, and one for code of one's own."""
    things = []
    for name in registry.things:
        known = registry.options(name)
        make = registry.find(name)
        properties = {"name": {"enum": [name], "description": summary(make)}, **_properties(make, known, None)}
        thing: Schema = {"type": "object", "title": name, "properties": properties}
        thing["additionalProperties"] = "**" in known
        things.append(thing)
    own = {"type": "object", "properties": {"name": {"type": "string", "pattern": OWN_CODE}}, "required": ["name"]}
    return {"anyOf": [*things, own]}


def _properties(make: Make, known: Mapping[str, Option], default: Any) -> dict[str, Schema]:
    """The schema of each key of a table."""
    properties = {}
    for key in keys_of("", make, known, default):
        option = key.option
        of_key = {**_of_type(option.kind), **_limits(option.limit)}
        of_key["description"] = option.meaning or option.name
        if option.default is not REQUIRED and option.default is not None:
            of_key["default"] = plain(option.default, option.kind)
        properties[option.name] = of_key
    return properties


def _limits(limit: Limit | None) -> Schema:
    """The limits of a key's numbers. In a schema they say nothing of what is no number."""
    if limit is None:
        return {}
    least, most = limit.ends
    limits: Schema = {}
    if least is not None:
        limits["minimum"] = least
        if limit.interval.ge is None:
            limits["exclusiveMinimum"] = True
    if most is not None:
        limits["maximum"] = most
        if limit.interval.le is None:
            limits["exclusiveMaximum"] = True
    return limits


def _of_type(kind: Any) -> Schema:
    """The schema of the values of a type, as TOML writes them; an empty one for what no schema can say."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        each = [_of_type(one) for one in arguments if one is not NoneType]
        written = [one for one in each if one]  # an object of Python can't be written into a file
        if Any in arguments or not written:
            return {}
        return written[0] if len(written) == 1 else {"anyOf": written}
    if origin is Literal:
        return {"enum": list(arguments)}
    if kind in PLAIN:
        return dict(PLAIN[kind])
    if origin in (tuple, list, Sequence):
        fixed = origin is tuple and Ellipsis not in arguments
        array: Schema = {"type": "array"}
        if not fixed or len(set(arguments)) == 1:
            array["items"] = _of_type(arguments[0])
        if fixed:
            array["minItems"] = array["maxItems"] = len(arguments)
        return array
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of_type(arguments[1])}
    return _of_class(kind)


PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Path: {"type": "string"},
}


def _of_class(kind: Any) -> Schema:
    """The schema of a table that is an object of a class, or of its short form."""
    registry = registry_of(kind)
    if registry is not None:
        name = next(name for name, each in REGISTRIES.items() if each is registry)
        table: Schema = {"$ref": f"#/definitions/{name}"}
    elif is_dataclass(kind):
        make: Any = kind
        properties = _properties(make, options(make), None)
        table = {"type": "object", "additionalProperties": False, "properties": properties}
    else:
        return {}
    form = short_form(kind)
    return table if form is None else {"anyOf": [_of_type(form), table]}
