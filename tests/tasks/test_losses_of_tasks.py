"""Every task's loss of a sample against a naive account in Python, and what labels and outputs it takes."""

from __future__ import annotations

from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsash import SettingError
from fedsash.data.federated import FederatedData
from fedsash.settings.errors import ModelError
from fedsash.tasks import (
    Binary,
    Classification,
    MultiLabel,
    NextToken,
    OnlyLoss,
    Regression,
    Segmentation,
    Task,
    check_all_count,
    chosen_task,
    per_sample,
)

B = 5
C = 4


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def labels(*shape: int, below: int = C) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(7))


def log_softmax(row: list[float]) -> list[float]:
    total = log(sum(exp(v) for v in row))
    return [v - total for v in row]


def logistic(logit: float, y: int, positive: float) -> float:
    return -positive * log(1 / (1 + exp(-logit))) if y else -log(1 - 1 / (1 + exp(-logit)))


def test_cross_entropy_with_class_weights_and_label_smoothing() -> None:
    output = drawn(B, C)
    y = labels(B)
    weights = (0.5, 1.0, 2.0, 3.0)
    s = 0.2
    expected = []
    for row, label in zip(output.tolist(), y.tolist(), strict=True):
        said = log_softmax(row)
        expected.append(weights[label] * (-(1 - s) * said[label] - s * sum(said) / C))
    assert Classification(weights, s).loss(output, y).tolist() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("positive", [1.0, 3.0])
def test_logistic_losses_of_one_logit_and_of_several_labels(positive: float) -> None:
    output = drawn(B, C)
    y = labels(B, C, below=2)
    each = [
        [logistic(v, t, positive) for v, t in zip(*pair, strict=True)]
        for pair in zip(output.tolist(), y.tolist(), strict=True)
    ]
    assert MultiLabel(positive).loss(output, y).tolist() == pytest.approx([sum(row) / C for row in each], rel=1e-12)
    one = Binary(positive).loss_of(output[:, :1], y[:, 0])
    assert one.tolist() == pytest.approx([row[0] for row in each], rel=1e-12)


@pytest.mark.parametrize(("error", "of"), [
    ("squared", lambda e: e * e),
    ("absolute", abs),
    ("huber", lambda e: e * e / 2 if abs(e) <= 0.7 else 0.7 * (abs(e) - 0.35)),
])  # fmt: skip
def test_errors_of_numbers_are_averaged_over_the_targets(error: Any, of: Any) -> None:
    output = drawn(B, 3)
    y = drawn(3, B).T
    expected = [
        sum(of(a - b) for a, b in zip(*pair, strict=True)) / 3 for pair in zip(output.tolist(), y.tolist(), strict=True)
    ]
    assert Regression(error, delta=0.7).loss_of(output, y).tolist() == pytest.approx(expected, rel=1e-13)
    assert torch.equal(
        Regression(error).loss_of(output[:, :1], y[:, 0]), Regression(error).loss_of(output[:, 0], y[:, 0])
    )


def test_pixels_and_tokens_that_do_not_count_add_nothing_to_a_loss_that_is_divided_by_all() -> None:
    output = drawn(2, C, 3, 2)
    y = labels(2, 3, 2)
    y[0, 0, 0] = 255
    flat_output = output.movedim(1, -1).reshape(2, 6, C).tolist()
    flat_y = y.reshape(2, 6).tolist()
    expected = [
        sum(-log_softmax(row)[t] for row, t in zip(rows, own, strict=True) if t != 255) / 6
        for rows, own in zip(flat_output, flat_y, strict=True)
    ]
    assert Segmentation(ignored=255).loss(output, y).tolist() == pytest.approx(expected, rel=1e-13)
    tokens = output.movedim(1, -1).reshape(2, 6, C), y.reshape(2, 6)
    assert NextToken(padding=255).loss(*tokens).tolist() == pytest.approx(expected, rel=1e-13)


class Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


def test_what_counts_of_an_output() -> None:
    logits = drawn(B, C)
    y = labels(B)
    task = Classification()
    for output in (logits, (logits, None), [logits], {"loss": 1.0, "logits": logits}, Output(logits)):
        assert task.answer(output, y) is logits
    for output in ({"scores": logits}, None, (), "text"):
        with pytest.raises(ModelError, match="must return a tensor"):
            task.answer(output, y)


@pytest.mark.parametrize(("loss", "task"), [
    (nn.CrossEntropyLoss(), Classification()),
    (functional.cross_entropy, Classification()),
    (nn.BCEWithLogitsLoss(), Binary()),
    (nn.MSELoss(), Regression()),
    (functional.mse_loss, Regression()),
    (nn.HuberLoss(delta=0.3), Regression()),
])  # fmt: skip
def test_the_mean_of_the_losses_of_pytorch_is_undone(loss: Any, task: Task) -> None:
    output = drawn(B, C) if isinstance(task, Classification) else drawn(B)
    y = labels(B) if isinstance(task, Classification) else labels(B, below=2).double()
    own = per_sample(loss, task)
    assert own(output, y).shape == (B,)
    torch.testing.assert_close(own(output, y).mean(), loss(output, y), rtol=1e-14, atol=0)


def test_the_cross_entropy_of_pytorch_finds_the_classes_of_tokens_and_pixels_whatever_the_shape() -> None:
    tokens = drawn(2, C, C)
    y = labels(2, C)
    y[0, 1:] = -100
    pixels = drawn(2, C, C, C)
    classes = labels(2, C, C)
    for loss in (nn.CrossEntropyLoss(), functional.cross_entropy):
        assert torch.equal(per_sample(loss, NextToken())(tokens, y), NextToken().loss(tokens, y))
        assert torch.equal(per_sample(loss, Segmentation())(pixels, classes), Segmentation().loss(pixels, classes))


def test_reductions_that_have_no_loss_of_a_sample_are_refused() -> None:
    with pytest.raises(SettingError, match="sum over the batch"):
        per_sample(nn.MSELoss(reduction="sum"), Regression())
    with pytest.raises(SettingError, match=r"Classification\(weights"):
        per_sample(nn.CrossEntropyLoss(weight=torch.ones(C)), Classification())


def test_the_task_that_a_loss_says() -> None:
    whole = labels(B)
    numbers = drawn(B)
    assert chosen_task(None, whole) == Classification()
    assert chosen_task(None, whole, nn.CrossEntropyLoss()) == Classification()
    assert chosen_task(None, labels(B, below=2).float(), nn.BCEWithLogitsLoss()) == Binary()
    assert chosen_task(None, labels(B, 3, below=2), nn.BCEWithLogitsLoss()) == MultiLabel()
    for loss in (nn.MSELoss(), functional.mse_loss, nn.L1Loss(), functional.huber_loss, nn.SmoothL1Loss()):
        assert chosen_task(None, numbers, loss) == chosen_task(None, whole, loss) == Regression()
    assert chosen_task(None, whole, functional.cross_entropy) == Classification()
    assert chosen_task(None, labels(B, 3), nn.CrossEntropyLoss()) == OnlyLoss() == chosen_task(None, numbers)
    assert chosen_task(None, labels(B, below=2), functional.binary_cross_entropy_with_logits) == Binary()
    assert chosen_task(None, whole, lambda output, y: output.sum(1)) == OnlyLoss()
    assert chosen_task(Binary(), whole, nn.MSELoss()) == Binary()


@pytest.mark.parametrize(("task", "y", "says"), [
    (Classification(), torch.tensor([0, 4]), r"y\[1\] = 4: must be 0 to 3"),
    (Classification(), torch.tensor([0.5, 1.0]), "must be integers"),
    (Classification((1.0, 2.0)), torch.tensor([0, 1]), "must be one for each of 4 classes"),
    (Classification(), torch.zeros(2, 3, dtype=torch.int64), "one class for each"),
    (Binary(), torch.tensor([0, 2]), r"y\[1\] = 2: must be 0 to 1"),
    (MultiLabel(), torch.tensor([0, 1]), r"\[samples, labels\]"),
    (MultiLabel(), torch.tensor([[0, 1], [1, 3]]), r"y\[1\] = 3"),
    (Regression(), torch.tensor([0, 1]), "must be numbers"),
    (Regression(), torch.tensor([0.0, torch.nan]), r"y\[1\] = nan: must be finite"),
    (Segmentation(), torch.tensor([0, 1]), r"\[samples, height, width\]"),
    (NextToken(), torch.tensor([[0, -1]]), r"y\[0\] = -1"),
])  # fmt: skip
def test_labels_that_do_not_fit_are_refused_by_their_place(task: Task, y: Tensor, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        task.check_labels(y, C, "y")


def test_labels_of_numbers_are_no_classes_whatever_their_type() -> None:
    data = FederatedData.from_arrays(drawn(B, 2), labels(B), [[0, 1], [2, 3, 4]], task=Regression())
    assert data.classes == 0 and data.counts().tolist() == [[2], [3]]
    given = FederatedData.from_arrays(drawn(B, 2), labels(B), [range(B)])
    assert given.classes > 0 and given.learning(nn.MSELoss()).classes == 0
    assert Regression().width(labels(B), 3) == 1


@pytest.mark.parametrize(("task", "output", "y"), [
    (Classification(), drawn(B, C + 2), labels(B)),
    (Segmentation(), drawn(2, C + 1, 3, 2), labels(2, 3, 2)),
    (NextToken(), drawn(2, 3, C + 5), labels(2, 3)),
])  # fmt: skip
def test_a_model_may_have_more_outputs_than_there_are_classes(task: Task, output: Tensor, y: Tensor) -> None:
    assert task.fits(output, y, C) and not task.fits(output.narrow(1 if output.dim() != 3 else 2, 0, C - 1), y, C)


def test_labels_become_the_type_of_the_task_where_none_changes() -> None:
    assert Binary().labelled(torch.tensor([0.0, 1.0])).dtype == torch.int64
    assert Binary().labelled(torch.tensor([0.5, 1.0])).is_floating_point()
    assert Regression().labelled(torch.tensor([3, 4])).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("task", [NextToken(padding=255), Segmentation(ignored=255)])
def test_labels_that_do_not_count_are_no_classes(task: Task) -> None:
    y = torch.full((2, 3) if isinstance(task, NextToken) else (2, 3, 3), 255)
    assert task.classes(y) == 0
    y[0, 0] = 9
    assert task.classes(y) == 10


def test_a_mean_that_leaves_labels_out_is_refused_where_there_are_such_labels() -> None:
    data = FederatedData.from_arrays(torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]), [[0, 1], [2, 3]])
    with pytest.raises(SettingError, match=r"labels of a batch are not 2, and FederatedData\.train\.y has such labels"):
        data.learning(nn.CrossEntropyLoss(ignore_index=2))
    for loss in (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=2, reduction="none"), functional.nll_loss):
        assert data.learning(loss).problem.task == Classification()
    check_all_count(None, {"train": torch.tensor([-100])})
    for loss in (functional.cross_entropy, nn.NLLLoss()):
        with pytest.raises(SettingError, match=r"are not -100, and FederatedData\.test\.y has such labels"):
            check_all_count(loss, {"train": torch.tensor([0, 1]), "test": torch.tensor([0, -100])})
