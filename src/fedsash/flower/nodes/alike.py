"""A node's data as the server has them: labels and features that have names are found by these names."""

from __future__ import annotations

from dataclasses import replace

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
    train = _alike_samples(data.train, data, problem)
    test = None if data.test is None else _alike_samples(data.test, data, problem)
    return replace(
        data,
        train=train,
        test=test,
        task=problem.task,
        classes=problem.classes,
        transform=problem.transform,
        label_names=problem.label_names,
        feature_names=problem.feature_names,
    )


def _alike_samples(samples: Samples, data: FederatedData, problem: Problem) -> Samples:
    if data.label_names != problem.label_names:
        samples = _renumbered(samples, data.label_names, problem)
    if data.feature_names and problem.feature_names and data.feature_names != problem.feature_names:
        samples = _reordered(samples, data.feature_names, problem.feature_names)
    return samples


def _renumbered(samples: Samples, names: tuple[str, ...], problem: Problem) -> Samples:
    """The samples with the server's number for each label; `names` are the node's, by its own numbers."""
    if problem.label_names:
        server_names = problem.label_names
        requirement = f"must be among the server's: {some(server_names, MOST)}"
    elif problem.classes:
        server_names = tuple(map(str, range(problem.classes)))
        requirement = f"must be among the server's integers: {some(server_names, MOST)}"
    else:
        server_names = ()
        requirement = "must be numbers, as the server's are"
    if samples.y.ndim > 1:  # a name for each column: arrays have none
        check(not names or not problem.label_names, "labels", some(names, MOST), requirement)
        return samples
    labels, indices = torch.unique(samples.y, return_inverse=True)
    label_names = [str(label) for label in labels.tolist()]
    if names:
        label_names = [names[label] for label in labels.tolist()]
    unknown = [name for name in label_names if name not in server_names]
    check(not unknown, "labels", some(unknown, MOST), requirement)
    numbers = torch.tensor([server_names.index(name) for name in label_names], device=samples.y.device)
    return replace(samples, y=numbers[indices])


def _reordered(samples: Samples, names: tuple[str, ...], server_names: tuple[str, ...]) -> Samples:
    requirement = f"must be the server's: {some(server_names, MOST)}"
    check(sorted(names) == sorted(server_names), "features", some(names, MOST), requirement)
    assert isinstance(samples.x, Tensor)
    columns = [names.index(name) for name in server_names]
    return replace(samples, x=samples.x[:, columns])
