"""Before the first round two samples go through model, loss and metrics: what fits works, the rest is one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash import FederatedData, Federation, SettingError, Uniform
from fedsash.data import Inputs
from fedsash.tasks import (
    Binary,
    Classification,
    MultiLabel,
    OnlyLoss,
    Regression,
    Task,
)
from support.by_default import rotated
from support.problems import (
    CLASSES,
    COUNTS,
    MASK,
    TABLE,
    TOKENS,
    WORDS,
    YES,
    N,
    Words,
    Wrapped,
    Y,
    judged,
    output,
    own,
    world,
)
from support.worlds import SEQUENTIAL

# What people have.


@pytest.mark.parametrize("reader, dtype", rotated(["none", "lstm", "transformer"], [np.int64, np.int32, np.uint16]))
def test_token_ids_reach_an_embedding_as_integers(reader: str, dtype: Any) -> None:
    f = world(Words(reader), TOKENS.astype(dtype), Y)
    assert f.training_data.train.x.dtype == torch.int64
    assert f.start().w.dtype == torch.float32 and 0 < judged(f)["accuracy"] <= 1


def test_a_bag_of_words_and_an_lstm_of_numbers_take_them_as_they_are() -> None:
    bag = nn.Sequential(nn.EmbeddingBag(WORDS, 6), nn.Linear(6, CLASSES))
    assert judged(world(bag, TOKENS, Y)).loss < 5

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(self.read(x)[0][:, -1])
            return found

    assert judged(world(Last(), TABLE[:, :, None], Y)).loss < 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_table_of_integers_suits_a_model_of_numbers_of_its_type(dtype: torch.dtype) -> None:
    f = world(nn.Linear(4, CLASSES).to(dtype), COUNTS, Y)
    assert f.training_data.train.x.dtype == dtype
    state = f.start()
    said = output(f, state.w, torch.from_numpy(COUNTS).to(dtype))
    expected = F.cross_entropy(said, torch.from_numpy(Y))
    assert f.evaluate(state)[0].loss == pytest.approx(float(expected), rel=1e-6)


def test_a_double_model_sees_every_digit_of_double_features() -> None:
    tiny = 1e-12 * TABLE + 1.0
    f = world(nn.Linear(4, CLASSES).double(), tiny, Y)
    assert torch.equal(f.training_data.train.x, torch.from_numpy(tiny))


def test_a_dict_with_a_mask_is_passed_by_name_and_a_tuple_by_position() -> None:
    by_name = world(Words(), {"input_ids": TOKENS, "attention_mask": MASK}, Y)
    assert isinstance(by_name.training_data.train.x, Inputs)
    state, y = by_name.start(), torch.from_numpy(Y)
    model = by_name.module_of(state.w)
    with torch.no_grad():
        said = model(input_ids=torch.from_numpy(TOKENS), attention_mask=torch.from_numpy(MASK))
    assert by_name.evaluate(state)[0].loss == pytest.approx(float(F.cross_entropy(said, y)), rel=1e-6)
    by_place = world(by_name.model, (TOKENS, MASK.astype(np.int64)), Y)
    assert judged(by_place).loss == pytest.approx(judged(by_name).loss, rel=1e-6)


def test_a_model_of_two_tables_takes_a_tuple_of_numbers() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, CLASSES)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            found: Tensor = self.head(torch.cat([left, right], 1))
            return found

    f = world(Both(), (TABLE, TABLE[:, :2]), Y)
    assert f.training_data.train.x.shape == {"0": (N, 4), "1": (N, 2)} and judged(f).loss < 5


@dataclass
class Answer:
    logits: Tensor


@pytest.mark.parametrize(
    "wrap", [lambda z: (z, None), lambda z: [z, z], lambda z: {"logits": z, "loss": None}, Answer], ids=range(4)
)
def test_logits_are_found_in_a_tuple_a_list_a_dict_and_an_object(wrap: Callable[[Tensor], Any]) -> None:
    torch.manual_seed(0)
    wrapped = Wrapped(wrap)
    assert judged(world(wrapped, TABLE, Y)) == judged(world(wrapped.head, TABLE, Y))


# Losses.


def test_one_logit_with_a_loss_of_ones_own_is_given_its_true_accuracy_by_the_task() -> None:
    """It was reported as 0.5: the class with the highest of one logit is always 0."""
    f = world(nn.Linear(4, 1), TABLE, YES, task=Binary(), loss=own)
    with f:
        state = f.start()
        for _ in range(20):
            state, _ = f.round(state)
        found = f.evaluate(state)[0]["accuracy"]
        right = (output(f, state.w, torch.from_numpy(TABLE).float())[:, 0] > 0).numpy() == YES
    assert found == right.mean() > 0.8


def test_a_loss_of_ones_own_without_a_task_has_a_loss_and_no_accuracy() -> None:
    f = world(nn.Linear(4, 1), TABLE, YES, loss=own)
    found = judged(f)
    assert f.goal.task == OnlyLoss() and f.goal.criterion.name == "loss" and f.goal.criterion.better == "lower"
    assert found.values == {} and found.row().keys() == {"round", "model", "split", "loss", "classes"}


@pytest.mark.parametrize(
    ("loss", "width", "y", "task"),
    [
        (nn.CrossEntropyLoss(), CLASSES, Y, Classification()),
        (F.cross_entropy, CLASSES, Y, Classification()),
        (nn.BCEWithLogitsLoss(), 1, YES, Binary()),
        (F.binary_cross_entropy_with_logits, 1, YES.astype(float), Binary()),
        (nn.BCEWithLogitsLoss(), 4, (TABLE > 0).astype(float), MultiLabel()),
        (nn.MSELoss(), 1, TABLE[:, 0], Regression()),
        (nn.MSELoss(), 1, Y, Regression()),
        (F.l1_loss, 2, TABLE[:, :2], Regression()),
        (nn.SmoothL1Loss(), 1, Y, Regression()),
    ],
)
def test_a_loss_of_pytorch_as_people_write_it_trains_the_task_that_it_says(
    loss: Any, width: int, y: Any, task: Task
) -> None:
    f = world(nn.Linear(4, width).double(), TABLE, y, loss=loss)
    assert f.goal.task == task
    before = f.evaluate(f.start())[0]
    labels = f.training_data.train.y
    said = output(f, f.start().w, torch.from_numpy(TABLE))
    said = said.squeeze(-1) if labels.dim() == 1 and width == 1 else said
    plain = loss(said, labels.to(said.dtype) if isinstance(task, Binary | MultiLabel) else labels)
    assert before.loss == pytest.approx(float(plain), rel=1e-12)
    assert before.values.keys() == task.metrics.keys()
    assert judged(f, rounds=6).loss < before.loss


def test_a_loss_that_stretches_outputs_and_labels_over_each_other_is_refused() -> None:
    """PyTorch makes [B, B] of outputs [B, 1] and labels [B]: a mean over all pairs."""
    with pytest.warns(UserWarning), pytest.raises(SettingError, match=r"MSELoss\(\): makes losses \[2, 2\] of outputs"):
        world(nn.Linear(4, 1), TABLE, TABLE[:, 0], task=OnlyLoss(), loss=nn.MSELoss())


def test_a_metric_that_needs_two_labels_is_tried_with_two_labels() -> None:
    """The first samples of a sorted data set all have one."""

    def spread(output: Tensor, y: Tensor) -> float:
        if len(set(y.tolist())) < 2:
            raise ValueError("only one class")
        return float(output[y == 1].mean() - output[y == 0].mean())

    order = np.argsort(YES, kind="stable")
    f = world(nn.Linear(4, 1), TABLE[order], YES[order], task=Binary(), metrics={"spread": spread})
    state = f.start()
    logits = output(f, state.w, torch.from_numpy(TABLE).float())[:, 0].numpy()
    expected = logits[YES == 1].mean() - logits[YES == 0].mean()
    found = f.evaluate(state)[0]
    assert found["spread"] == pytest.approx(expected, rel=1e-5) and "classes" not in found.more


def test_without_a_test_set_nothing_is_evaluated_and_a_line_says_so() -> None:
    data = FederatedData.from_arrays(TABLE, Y, [range(N)])
    with Federation(nn.Linear(4, CLASSES), data, sampling=Uniform(1), engine=SEQUENTIAL, device="cpu") as f:
        notes = f.prepare()
        assert f.evaluate(f.start()) == []
    assert any(note.startswith("there is no test set") for note in notes)


def test_a_model_that_has_no_graph_in_eval_mode_learns() -> None:
    class Careful(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.set_grad_enabled(self.training):
                return super().forward(x)

    f = world(Careful(4, CLASSES), TABLE, Y)
    state = f.start()
    assert not torch.equal(f.round(state)[0].w, f.start().w)
