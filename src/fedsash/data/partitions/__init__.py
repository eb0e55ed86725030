"""Who holds which samples: rules `(labels [n], seed) -> each client's indices`, pure functions of both.

Every rule ends, or raises `ValueError` with a sentence that says what would help.
"""

from __future__ import annotations

from .dirichlet import Dirichlet, DirichletClasses, DirichletReuse
from .even import IID, Shards
from .flwr import Flwr

Partition = IID | Shards | Dirichlet | DirichletClasses | DirichletReuse | Flwr

PARTITIONS: dict[str, type[Partition]] = {
    "iid": IID,
    "shards": Shards,
    "dirichlet": Dirichlet,
    "dirichlet_classes": DirichletClasses,
    "dirichlet_reuse": DirichletReuse,
    "flwr": Flwr,
}

__all__ = ["IID", "PARTITIONS", "Dirichlet", "DirichletClasses", "DirichletReuse", "Flwr", "Partition", "Shards"]
