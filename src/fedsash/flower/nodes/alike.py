"""A node's data as the server has them: labels and features that have names are found by these names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...data.federated import FederatedData, Problem
from ...data.samples import Samples
from ...settings.errors import check, some

MOST = 10
"""At most so many names are in a line."""


def alike(data: FederatedData, problem: Problem) -> FederatedData:
    """A node's data with the server's number for each label, and its order of features, task and transform.

    A table numbers the texts that occur in it, so a node without samples of a class has other numbers. Labels without
    names have their numbers as names. A table's features are in the order of its file. Raises `SettingError` for labels
    that the server does not have, and for features that are not the server's.
    """
    parts: dict[str, Any] = {"train": data.train} | ({} if data.test is None else {"test": data.test})
    if data.label_names != problem.label_names:
        parts = {name: _numbered(part, data.label_names, problem) for name, part in parts.items()}
    if data.feature_names and problem.feature_names and data.feature_names != problem.feature_names:
        parts = {name: _ordered(part, data.feature_names, problem.feature_names) for name, part in parts.items()}
    said = {name: getattr(problem, name) for name in ("task", "classes", "transform", "label_names", "feature_names")}
    return replace(data, **parts, **said)


def _numbered(samples: Samples, own: tuple[str, ...], problem: Problem) -> Samples:
    names = problem.label_names or tuple(map(str, range(problem.classes)))
    whose = "the server's" if problem.label_names else "the server's integers"
    right = f"must be among {whose}: {some(names, MOST)}" if names else "must be numbers, as the server's are"
    if samples.y.ndim > 1:  # a name for each column: arrays have none
        check(not own or not problem.label_names, "labels", some(own, MOST), right)
        return samples
    found, places = torch.unique(samples.y, return_inverse=True)
    here = [own[label] if own else str(label) for label in found.tolist()]
    unknown = [name for name in here if name not in names]
    check(not unknown, "labels", some(unknown, MOST), right)
    return replace(samples, y=torch.tensor([names.index(name) for name in here], device=samples.y.device)[places])


def _ordered(samples: Samples, own: tuple[str, ...], names: tuple[str, ...]) -> Samples:
    check(sorted(own) == sorted(names), "features", some(own, MOST), f"must be the server's: {some(names, MOST)}")
    assert isinstance(samples.x, Tensor)
    return replace(samples, x=samples.x[:, [own.index(name) for name in names]])
