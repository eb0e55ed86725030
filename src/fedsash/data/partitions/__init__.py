"""Partitions: rules that give each client its samples.

A rule is a pure function `rule(labels [n], seed)` that returns each client's indices. A rule that needs other fields of
the samples names them in `by` and is called with them: `Domains` with `(domain, labels, seed)`. Every rule ends. If it
can't partition the samples, it raises `SettingError` or `DataError` with a sentence that says what would help.
"""

from __future__ import annotations

from .dirichlet import Dirichlet, DirichletClasses, DirichletReuse
from .domains import Domains
from .even import IID, Shards
from .flwr import Flwr
from .pachinko import Pachinko
from .pairs import ClassPairs
from .quantity import Quantity
from .users import Users

PARTITIONS: dict[str, type] = {
    "iid": IID,
    "shards": Shards,
    "class_pairs": ClassPairs,
    "dirichlet": Dirichlet,
    "dirichlet_classes": DirichletClasses,
    "dirichlet_reuse": DirichletReuse,
    "pachinko": Pachinko,
    "quantity": Quantity,
    "users": Users,
    "domains": Domains,
    "flwr": Flwr,
}

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
]
