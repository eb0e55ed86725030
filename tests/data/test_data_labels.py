"""Labels of training and test samples are of one kind, and a loss may say what they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash import FederatedData, SettingError
from fedsash.data import IID, Samples, Source
from fedsash.data.transform import PLAIN
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.tasks import Binary, Classification, MultiLabel, OnlyLoss, Regression
from support.worlds import SEQUENTIAL

X = np.arange(12, dtype=np.float64).reshape(6, 2)
WHOLE = np.array([0, 1, 2, 0, 1, 2])
YES = np.array([0, 1, 1, 0, 0, 1])
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
    requirement = "must have the type and the shape of the training samples' labels"
    with pytest.raises(SettingError, match=rf"^FederatedData.test.y = .*: {requirement}"):
        data(y, tested, **settings)


@pytest.mark.parametrize("task", [Classification(), Binary()])
def test_whole_numbers_that_a_column_holds_as_floats_are_classes_for_a_task_of_classes(task: Any) -> None:
    y = torch.from_numpy(YES * 1.0)
    source = Source(Samples(torch.from_numpy(X), y), None, 0, PLAIN).learning(task)
    made = source.partition(IID(2))
    assert (source.classes, made.classes, made.train.y.tolist()) == (2, 2, YES.tolist())
    with pytest.raises(SettingError, match=r"the training labels = 'torch.float64': labels of the task"):
        replace(source, train=Samples(torch.from_numpy(X), y + 0.5), classes=0).learning(task)


@pytest.mark.parametrize("task", [None, Classification(), Binary()])
@pytest.mark.parametrize("y", [2 * YES - 1, -1 - YES])
def test_negative_labels_are_no_classes_and_what_to_do_is_said(y: Any, task: Any) -> None:
    requirement = r"classes are numbered from 0 on \(write 0 and 1 for -1 and 1\); other numbers need a task such as"
    with pytest.raises(SettingError, match=rf"^FederatedData.train.y\[0\] = -1: {requirement}"):
        data(y, task=task)


def test_labels_of_one_dimension_are_not_several() -> None:
    with pytest.raises(SettingError, match=r"train.y = \[6\]: must be \[samples, labels\], each 0 or 1"):
        data(YES * 1.0, task=MultiLabel())


def test_a_loss_says_how_many_labels_there_are() -> None:
    several = data(SEVERAL).learning(nn.BCEWithLogitsLoss())
    yes = data(YES * 1.0).learning(nn.BCEWithLogitsLoss())
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


def said(data: FederatedData) -> list[str]:
    """What a federation says of its data at the start."""
    with Federation(nn.Linear(2, max(data.classes, 1)), data, sampling=Uniform(2), engine=SEQUENTIAL) as federation:
        return federation.prepare(1)


def test_classes_of_the_test_set_that_no_client_trains_on_are_named() -> None:
    line = "the test set has classes that no client trains on"
    assert said(data(YES, WHOLE + 1)) == [f"{line}: 2 (2 samples), 3 (2 samples)"]
    named = data(YES, WHOLE, label_names=("cat", "dog", "wolf"))
    assert said(named) == [f"{line}: wolf (2 samples)"]
    assert said(replace(data(WHOLE, WHOLE), clients=[[0, 3], [1, 4]])) == [f"{line}: 2 (2 samples)"]


@pytest.mark.parametrize(("y", "tested", "settings"), [
    (WHOLE, YES, {}),
    (WHOLE, WHOLE, {}),
    (YES * 1.0, YES + 0.5, {"task": Regression()}),
], ids=["fewer", "all", "numbers"])  # fmt: skip
def test_nothing_is_said_of_a_test_set_whose_labels_are_trained(y: Any, tested: Any, settings: dict[str, Any]) -> None:
    assert said(data(y, tested, **settings)) == []


@pytest.mark.parametrize("how", ["data", "loss", "source"])
def test_labels_with_names_are_not_learned_as_numbers(how: str) -> None:
    named = data(WHOLE, label_names=("10", "2.5", "9"))
    with pytest.raises(SettingError, match=r"'10, 2.5, 9': labels with names are .* Regression learns numbers"):
        if how == "data":
            replace(named, task=Regression())
        elif how == "loss":
            Federation(nn.Linear(2, 1), named, loss=nn.MSELoss(), device="cpu")
        else:
            Source(named.train, None, 3, PLAIN, named.label_names).learning(Regression())


def test_the_labels_of_a_binary_task_are_one_number_each() -> None:
    with pytest.raises(SettingError, match=r"^FederatedData.train.y = .6, 1.: must be .samples., a 0 or 1 for each"):
        data(YES[:, None], task=Binary())
