"""Data: where samples come from, who holds them, and how they are turned into batches."""

from __future__ import annotations

from .federated import FederatedData, Samples
from .partitions import IID, PARTITIONS, Dirichlet, DirichletClasses, DirichletReuse, Flwr, Shards
from .sources import DATASETS, Digits, Images, Source
from .transform import Transform

__all__ = [
    "DATASETS",
    "IID",
    "PARTITIONS",
    "Digits",
    "Dirichlet",
    "DirichletClasses",
    "DirichletReuse",
    "FederatedData",
    "Flwr",
    "Images",
    "Samples",
    "Shards",
    "Source",
    "Transform",
]
