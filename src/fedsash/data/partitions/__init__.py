"""Who holds which samples: rules `(labels [n], seed) -> each client's indices`, pure functions of both.

A rule that needs more than labels names in `by` the fields of the samples that it is called with instead: `Domains`
with `(domain, labels, seed)`. Every rule ends, or raises `ValueError` with a sentence that says what would help.
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
