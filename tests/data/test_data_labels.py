"""Labels of training and test samples are of one kind, and a loss may say what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash import FederatedData, SettingError
from fedsash.tasks import Binary, Classification, MultiLabel, OnlyLoss, Regression

X = np.arange(12, dtype=np.float64).reshape(6, 2)
WHOLE, YES = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 1, 1, 0, 0, 1])
SEVERAL = np.stack([YES, 1 - YES, YES, YES], axis=1)


def data(y: Any, tested: Any = None, **settings: Any) -> FederatedData:
    return FederatedData.from_arrays(
        X, y, [[0, 1, 2], [3, 4, 5]], test=None if tested is None else (X, tested), **settings
    )


@pytest.mark.parametrize("task", [None, Classification()])
def test_whole_numbers_of_a_test_set_are_classes_where_the_training_labels_are(task: Any) -> None:
    made = data(WHOLE, WHOLE.astype(float), task=task)
    assert made.test is not None and made.test.y.dtype == torch.int64 and made.test.y.tolist() == WHOLE.tolist()


def test_numbers_of_a_test_set_of_classes_are_refused() -> None:
    with pytest.raises(SettingError, match=r"test\.y = 'torch.float64': labels of the task Classification"):
        data(WHOLE, WHOLE + 0.5)


@pytest.mark.parametrize(("y", "tested", "settings"), [
    (X[:, 0], X, {"task": Regression()}),
    (X, X[:, 0], {"task": Regression()}),
    (SEVERAL, SEVERAL[:, :2], {"task": MultiLabel()}),
    (X[:, 0], WHOLE, {}),
], ids=["one and two targets", "two targets and one", "labels", "numbers and classes"])  # fmt: skip
def test_labels_of_a_test_set_of_another_kind_are_refused(y: Any, tested: Any, settings: dict[str, Any]) -> None:
    right = "must have the type and the shape of the training samples' labels"
    with pytest.raises(SettingError, match=rf"^FederatedData.test.y = .*: {right}"):
        data(y, tested, **settings)


def test_a_loss_says_how_many_labels_there_are() -> None:
    several, yes = data(SEVERAL).learning(nn.BCEWithLogitsLoss()), data(YES * 1.0).learning(nn.BCEWithLogitsLoss())
    assert (several.task, several.classes, several.counts().tolist()) == (MultiLabel(), 4, [[2, 1, 2, 2], [1, 2, 1, 1]])
    assert (yes.task, yes.classes, yes.counts().tolist()) == (Binary(), 2, [[1, 2], [2, 1]])
    numbers = data(WHOLE).learning(nn.MSELoss())
    assert (numbers.task, numbers.classes, numbers.counts().tolist()) == (Regression(), 0, [[3], [3]])


def test_a_loss_of_classes_or_of_ones_own_keeps_the_number_of_classes() -> None:
    for loss, task in ((nn.CrossEntropyLoss(), Classification()), (lambda output, y: output.sum(1), OnlyLoss())):
        said = data(WHOLE, classes=7).learning(loss)
        assert (said.task, said.classes) == (task, 7)
    tested = data(YES, WHOLE).learning(lambda output, y: output.sum(1))
    assert tested.classes == 3
