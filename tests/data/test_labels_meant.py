"""Labels that are no classes, as people give them: the line says what was meant. And rules inside rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

from fedsash.data import ClassPairs, Domains, Flwr
from fedsash.data.federated import FederatedData
from fedsash.data.partitions import as_partition
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError

X = np.random.default_rng(0).random((12, 3))
Y = np.arange(12) % 3
MEANT = {
    "a column": (Y[:, None], r"these are a column: y\[:, 0\]"),
    "a column of floats": (Y[:, None] > 0.5, r"these are a column: y\[:, 0\]"),
    "one-hot": (np.eye(3)[Y], r"these are one-hot: y.argmax\(1\)"),
    "one-hot integers": (np.eye(3, dtype=int)[Y], r"these are one-hot: y.argmax\(1\)"),
    "whole floats": (Y.astype(np.float64), r"whole numbers of a floating-point type: y.astype\(int\)"),
}


def federation(y: Any) -> Federation:
    return Federation(nn.Linear(3, 3).double(), FederatedData.from_arrays(X, y, clients=[range(6), range(6, 12)]))


@pytest.mark.parametrize("kind", MEANT)
def test_labels_that_are_no_classes_get_the_sentence_that_helps(kind: str) -> None:
    y, line = MEANT[kind]
    with pytest.raises(SettingError, match=f"says nothing of what is learned: .*; labels of classes .*{line}"):
        federation(y)


def test_targets_get_no_hint() -> None:
    with pytest.raises(SettingError, match=r"such as fs.tasks.Regression\(\)$"):
        federation(X[:, 0])


def test_a_rule_inside_a_rule_is_a_dict_in_python_as_in_a_file() -> None:
    rule = as_partition({"name": "domains", "clients_per_domain": 2, "inner": {"name": "class_pairs"}})
    assert rule == Domains(2, ClassPairs(2))
    with pytest.raises(SettingError, match="partition = 'class_pars': must be one of"):
        as_partition({"name": "domains", "clients_per_domain": 2, "inner": {"name": "class_pars"}})


def test_options_that_are_a_dict_are_no_rule_inside_a_rule() -> None:
    table = {"name": "flwr", "clients": 2, "partitioner": "DirichletPartitioner", "options": {"alpha": 0.5}}
    assert as_partition(table) == Flwr(2, "DirichletPartitioner", {"alpha": 0.5})
