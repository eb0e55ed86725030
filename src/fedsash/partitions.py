"""How samples are dealt out to clients."""

from .data.partitions import (
    IID,
    ClassPairs,
    Dirichlet,
    DirichletClasses,
    DirichletReuse,
    Domains,
    Flwr,
    Pachinko,
    Quantity,
    Shards,
    Users,
)

__all__ = [
    "IID",
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
