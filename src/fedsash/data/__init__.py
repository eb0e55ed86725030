"""Data: the sources of samples, the clients that hold them, and the transform of raw images."""

from __future__ import annotations

from .digits import Digits
from .federated import FederatedData
from .images import Images
from .inputs import Inputs
from .npy import NpyFiles
from .own_transform import OwnTransform
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
from .published import CIFAR10, CIFAR100, FEMNIST, MNIST, PACS, DigitFive, FashionMNIST, Landmarks, TinyImageNet
from .samples import Samples
from .source import NamedDataset, Source
from .table import Table
from .text import Shakespeare
from .texts import Texts
from .tokens import next_tokens, tokenise
from .transform import TRANSFORMS, Transform, draws

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
