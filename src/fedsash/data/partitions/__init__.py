"""Partitions: rules that give each client its samples.

A rule is a pure function `rule(labels [n], seed)` that returns each client's indices. A rule that needs other fields of
the samples names them in `by` and is called with them: `Domains` with `(domain, labels, seed)`. Every rule ends. If it
can't partition the samples, it raises `SettingError` or `DataError` with a sentence that says what would help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ...settings.errors import check
from .by_labels import ClassPairs, Dirichlet, DirichletClasses, DirichletReuse, Pachinko
from .by_origin import Domains, Users
from .by_size import IID, Quantity, Shards
from .common import NamedPartition, Partition
from .flwr import Flwr

PARTITIONS = NamedPartition.by_name


def as_partition(rule: Any) -> Partition:
    """A rule that is given as itself, by its name, or as a table of an experiment file, a dict with `name` and options.

    A rule inside another, such as `Domains.inner`, may be a dict, too, and leave out `clients`, which the outer one
    sets. Raises `SettingError` for anything else.
    """
    if isinstance(rule, str):
        return _named(rule, {})
    if isinstance(rule, Mapping):
        options = dict(rule)
        return _named(options.pop("name", None), options)
    is_rule = callable(rule) and not isinstance(rule, type)
    check(is_rule, "partition", rule, "must be a rule such as fedsash.IID(clients=10), or its name")
    partition: Partition = rule
    return partition


def _named(name: Any, options: dict[str, Any]) -> Partition:
    """The registered rule of that name with its options."""
    check(name in PARTITIONS, "partition", name, f"must be one of {', '.join(PARTITIONS)}, or a rule of your own")
    make = PARTITIONS[name]
    settable = [field for field in fields(make) if field.init]
    known = [field.name for field in settable]
    unknown = [key for key in options if key not in known]
    check(not unknown, "partition", unknown[:1], f"{name} has no such option; it has {', '.join(known)}")
    missing = []
    for field in settable:
        is_required = field.default is MISSING and field.default_factory is MISSING
        if is_required and field.name not in options:
            missing.append(field.name)
    example = f"fedsash.{make.__name__}({', '.join(f'{key}=...' for key in missing)})"
    check(not missing, "partition", name, f"it needs {', '.join(missing)}: give {example}")
    arguments = {}
    for key, value in options.items():
        arguments[key] = value
        if isinstance(value, Mapping) and "name" in value:  # a rule inside this one
            arguments[key] = as_partition({"clients": 1, **value})
    partition: Partition = make(**arguments)
    return partition


__all__ = [
    "IID",
    "PARTITIONS",
    "ClassPairs",
    "Dirichlet",
    "DirichletClasses",
    "DirichletReuse",
    "Domains",
    "Flwr",
    "Pachinko",
    "Quantity",
    "Shards",
    "Users",
    "as_partition",
]
