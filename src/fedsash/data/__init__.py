"""Data: the sources of samples, the clients that hold them, and the transform of raw images."""

from __future__ import annotations

from .federated import FederatedData
from .inputs import Inputs
from .partitions import (
    IID,
    PARTITIONS,
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
from .samples import Samples
from .source import NamedDataset, Source
from .sources.images import Images
from .sources.npy import NpyFiles
from .sources.plays import Shakespeare
from .sources.published import (
    CIFAR10,
    CIFAR100,
    FEMNIST,
    MNIST,
    PACS,
    DigitFive,
    Digits,
    FashionMNIST,
    Landmarks,
    TinyImageNet,
)
from .sources.table import Table
from .sources.texts import Texts, next_tokens, tokenise
from .transform import TRANSFORMS, OwnTransform, Transform, draws

DATASETS = NamedDataset.by_name

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DATASETS",
    "FEMNIST",
    "IID",
    "MNIST",
    "PACS",
    "PARTITIONS",
    "TRANSFORMS",
    "ClassPairs",
    "DigitFive",
    "Digits",
    "Dirichlet",
    "DirichletClasses",
    "DirichletReuse",
    "Domains",
    "FashionMNIST",
    "FederatedData",
    "Flwr",
    "Images",
    "Inputs",
    "Landmarks",
    "NpyFiles",
    "OwnTransform",
    "Pachinko",
    "Quantity",
    "Samples",
    "Shakespeare",
    "Shards",
    "Source",
    "Table",
    "Texts",
    "TinyImageNet",
    "Transform",
    "Users",
    "draws",
    "next_tokens",
    "tokenise",
]
