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


def as_partition(given: Any) -> Partition:
    """The rule that is given: itself, its name, or a table as in an experiment file, a dict with `name` and options.

    A rule inside another, such as `Domains.inner`, may be a dict, too, and leave out `clients`, which the outer one
    sets. Raises `SettingError` for anything else.
    """
    if not isinstance(given, str | Mapping):
        check(callable(given), "partition", given, "must be a rule such as fedsash.IID(clients=10), or its name")
        rule: Partition = given
        return rule
    options = {"name": given} if isinstance(given, str) else dict(given)
    name = options.pop("name", None)
    check(name in PARTITIONS, "partition", name, f"must be one of {', '.join(PARTITIONS)}, or a rule of your own")
    make = PARTITIONS[name]
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(make) if f.init}
    unknown = [key for key in options if key not in known]
    check(not unknown, "partition", unknown[:1], f"{name} has no such option; it has {', '.join(known)}")
    missing = [key for key, needed in known.items() if needed and key not in options]
    example = f"fedsash.{make.__name__}({', '.join(f'{key}=...' for key in missing)})"
    check(not missing, "partition", name, f"it needs {', '.join(missing)}: give {example}")
    inner = {key: as_partition({"clients": 1, **value}) for key, value in options.items() if isinstance(value, Mapping)}
    made: Partition = make(**options | inner)
    return made


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
