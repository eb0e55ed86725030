"""Before the first round: what does not fit is one plain line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash import FedsashError, SettingError
from fedsash.errors import ModelError
from fedsash.models import shakespeare_lstm
from fedsash.tasks import (
    F1,
    Accuracy,
    Binary,
    Classification,
    MultiLabel,
    NextToken,
    Perplexity,
    Regression,
    RootMeanSquaredError,
    Segmentation,
)
from support.problems import CLASSES, MASK, TABLE, TOKENS, WORDS, YES, N, Words, Wrapped, Y, own, world


def scalar(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y)


def column(output: Tensor, y: Tensor) -> Tensor:
    return (output - y.unsqueeze(-1)).square()


def late(token: int) -> Any:
    """Token ids, of which a late one is another."""
    ids = TOKENS.copy()
    ids[20, 3] = token
    return ids


def squeezed(output: Tensor, y: Tensor) -> Tensor:
    return (output - y.unsqueeze(-1)).square().squeeze()


class Squeezing(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze()


def broken(output: Tensor, y: Tensor) -> float:
    raise RuntimeError("no\nsuch\nmetric")


class Echo(nn.Linear):
    """Returns its input first, and what it makes of it second."""

    def forward(self, x: Tensor) -> Any:
        return x, super().forward(x)


def hard(logits: Tensor) -> Tensor:
    return F.one_hot(logits.argmax(1), CLASSES).float()


REFUSED: dict[str, tuple[Callable[[], Any], type[FedsashError], str]] = {
    "one output for three classes": (
        lambda: world(nn.Linear(4, 1), TABLE, Y),
        ModelError,
        "outputs have the shape [2, 1]: the task Classification needs outputs of shape [2, 3] for 2 samples",
    ),
    "a loss that drops the dimension of a batch of one sample": (
        lambda: world(nn.Linear(4, 1), TABLE, TABLE[:, 0], loss=squeezed),
        SettingError,
        "Federation.loss = squeezed: must return one number for each of 1 samples, returned []",
    ),
    "a model that drops it": (
        lambda: world(Squeezing(4, CLASSES), TABLE, Y),
        ModelError,
        "the model's outputs have the shape [3]: the task Classification needs outputs of shape [1, 3] for 1 samples",
    ),
    "fewer outputs than labels": (
        lambda: world(nn.Linear(4, 2), TABLE, TABLE > 0, task=MultiLabel()),
        ModelError,
        "the model's outputs have the shape [2, 2]: the task MultiLabel needs outputs of shape [2, 4] for 2 samples",
    ),
    "more outputs than targets": (
        lambda: world(nn.Linear(4, 2), TABLE, TABLE[:, 0], task=Regression()),
        ModelError,
        "the model's outputs have the shape [2, 2]: the task Regression needs outputs of shape [2] for 2 samples",
    ),
    "two logits for yes or no": (
        lambda: world(nn.Linear(4, 2), TABLE, YES, task=Binary()),
        ModelError,
        "the model's outputs have the shape [2, 2]: the task Binary needs outputs of shape [2] for 2 samples",
    ),
    "one class for each image": (
        lambda: world(Words(), TOKENS, np.zeros((N, 2, 2), dtype=int), task=Segmentation()),
        ModelError,
        "the task Segmentation needs outputs of shape [2, 1, 2, 2] for 2 samples",
    ),
    "one class for each sequence": (
        lambda: world(Words(), TOKENS, TOKENS, task=NextToken()),
        ModelError,
        "NextToken needs outputs of shape [2, 5, 11] for 2 samples, as of shakespeare_lstm or a transformer",
    ),
    "a dict": (
        lambda: world(Wrapped(lambda z: {"scores": z}), TABLE, Y),
        ModelError,
        "the model returns a dict of scores: it must return a tensor, a tuple that begins with one, or something with "
        "logits; or a task with a method answer",
    ),
    "nothing": (
        lambda: world(Wrapped(lambda z: None), TABLE, Y),
        ModelError,
        "the model returns an object of class NoneType: it must return a tensor",
    ),
    "a loss of the input alone": (
        lambda: world(Echo(4, CLASSES), TABLE, Y),
        ModelError,
        "the loss does not depend on the model's parameters, so there is nothing to learn; of several outputs",
    ),
    "a choice in place of logits": (
        lambda: world(Wrapped(hard), TABLE, Y),
        ModelError,
        "the loss does not depend on the model's parameters, so there is nothing to learn",
    ),
    "another number of features": (
        lambda: world(nn.Linear(5, CLASSES), TABLE, Y),
        ModelError,
        "the model does not take samples of shape [4]: ",
    ),
    "images of another size": (
        lambda: world(nn.Sequential(nn.Flatten(), nn.Linear(9, CLASSES)), np.zeros((N, 4, 4), dtype=np.uint8), Y),
        ModelError,
        "the model does not take samples of shape [1, 4, 4] (images: channels, height, width): ",
    ),
    "a token beyond the table": (
        lambda: world(Words(), TOKENS + WORDS, Y),
        ModelError,
        "index out of range",
    ),
    "a token beyond the table of a model that takes numbers, too": (
        lambda: world(shakespeare_lstm((5,), 3, embedding=4, width=4), TOKENS + WORDS, Y),
        ModelError,
        "the model does not take samples of shape [5]: index out of range in self",
    ),
    "a late token beyond the table": (
        lambda: world(Words(), late(50), Y),
        ModelError,
        "the model does not take FederatedData.train.x[20] or [0], which hold 50 and 0: index out of range in self",
    ),
    "a late token below the table": (
        lambda: world(Words(), {"input_ids": late(-3), "attention_mask": MASK.astype(int)}, Y),
        ModelError,
        "which hold 10 and -3: index out of range in self",
    ),
    "a late character that no label has": (
        lambda: world(shakespeare_lstm((5,), 11, embedding=4, width=4), late(11), TOKENS, task=NextToken()),
        ModelError,
        "which hold 11 and 0: index out of range in self",
    ),
    "names that the model does not know": (
        lambda: world(Words(), {"input_ids": TOKENS, "mask": MASK}, Y),
        ModelError,
        "the model does not take samples of input_ids [5] torch.int64, mask [5] torch.bool: ",
    ),
    "labels as texts": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, np.array(["cat", "dog", "emu"])[Y]),
        SettingError,
        "y = '<U3 [24]': must be numbers",
    ),
    "a label below 0": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, Y - 1),
        SettingError,
        "FederatedData.train.y[0] = -1: classes are numbered from 0 on",
    ),
    "a label that is neither yes nor no": (
        lambda: world(nn.Linear(4, 1), TABLE, Y, task=Binary()),
        SettingError,
        "FederatedData.train.y[2] = 2: must be 0 to 1",
    ),
    "numbers as labels of nothing": (
        lambda: world(nn.Linear(4, 1), TABLE, TABLE[:, 0]),
        SettingError,
        "FederatedData.task = None: says nothing of what is learned: give a loss, or name a task in the data",
    ),
    "numbers as classes": (
        lambda: world(nn.Linear(4, 1), TABLE, TABLE[:, 0], task=Classification()),
        SettingError,
        "FederatedData.train.y = 'torch.float64': labels of the task Classification must be integers",
    ),
    "a loss of the whole batch": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, Y, loss=scalar),
        SettingError,
        "Federation.loss = scalar: must return one number for each of 2 samples, returned []: use reduction='none'",
    ),
    "a loss of another shape": (
        lambda: world(nn.Linear(4, 1), TABLE, Y, loss=column),
        SettingError,
        "Federation.loss = column: must return one number for each of 2 samples, returned [2, 1]",
    ),
    "a loss for other labels": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, TABLE[:, 0], loss=scalar),
        SettingError,
        "Federation.loss = scalar: does not take outputs ([2, 3]) and labels [2] of type torch.float32: ",
    ),
    "a metric that raises": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, Y, metrics={"mine": broken}),
        SettingError,
        "metrics = 'mine': can't be computed: no such metric; the task Classification gives it outputs [B, 3] and ",
    ),
    "a metric that gives no number": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, Y, metrics={"mine": lambda output, y: output}),
        SettingError,
        "metrics = 'mine': can't be computed: ",
    ),
    "the first five of three classes": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, Y, metrics={"top5": Accuracy(top=5)}),
        SettingError,
        "Accuracy.top = 5: must be at most 3, the number of classes",
    ),
    "a metric of numbers that raises": (
        lambda: world(nn.Linear(4, 1), TABLE, TABLE[:, 0], task=Regression(), metrics={"mine": broken}),
        SettingError,
        "; the task Regression gives it outputs [B] and labels [B]",
    ),
    "an accuracy of what nobody predicts": (
        lambda: world(nn.Linear(4, 1), TABLE, YES, loss=own, metrics={"right": Accuracy()}),
        SettingError,
        "Accuracy = [2, 1]: needs predictions of the labels' shape [2]: name a task in the data",
    ),
    "an error of what nobody predicts": (
        lambda: world(nn.Linear(4, 1), TABLE, TABLE[:, 0], loss=own, metrics={"off": RootMeanSquaredError()}),
        SettingError,
        "RootMeanSquaredError = [2, 1]: needs predictions of the labels' shape [2]: name a task in the data",
    ),
    "classes of numbers": (
        lambda: world(nn.Linear(4, 1), TABLE, TABLE[:, 0], task=Regression(), metrics={"f1": F1()}),
        SettingError,
        "F1 = torch.float32: needs labels that are integers",
    ),
    "the first two of one logit": (
        lambda: world(nn.Linear(4, 1), TABLE, YES, task=Binary(), metrics={"top2": Accuracy(top=2)}),
        SettingError,
        "Accuracy.top = 2: needs one output for each class",
    ),
    "the perplexity of no sequence": (
        lambda: world(nn.Linear(4, CLASSES), TABLE, Y, metrics={"perplexity": Perplexity()}),
        SettingError,
        "metrics = 'perplexity': can't be computed: ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_one_plain_line(case: str) -> None:
    make, kind, line = REFUSED[case]
    with pytest.raises(FedsashError) as error:
        make()
    assert type(error.value) is kind and line in str(error.value)
    assert str(error.value).count("index out of range") < 2 and str(error.value).count("the model does not take") < 2
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
