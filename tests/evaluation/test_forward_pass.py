"""Before the first round: a forward pass moves nothing that a run does not keep, and draws with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash import Evaluation, LocalTraining
from fedsash.errors import ModelError
from fedsash.methods import FedSAM
from support.problems import CLASSES, LENGTH, TABLE, TOKENS, WORDS, Y, judged, world
from support.worlds import after


class MaxNorm(nn.Linear):
    """Keeps its weights short by itself, as EEGNet does."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        return super().forward(x)


class Counting(nn.Linear):
    """Counts its passes, in place or anew."""

    def __init__(self, anew: bool) -> None:
        super().__init__(4, CLASSES)
        self.anew = anew
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.anew:
            self.passes = self.passes + 1
        else:
            self.passes += 1
        return super().forward(x)


class Drawing(nn.Linear):
    """Draws from a generator that has no seed here, in train mode."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__(4, CLASSES)
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.draw() if self.training else x)


class Masked(nn.Linear):
    """Makes a mask in its first pass, and draws as PyTorch does."""

    def __init__(self) -> None:
        super().__init__(4, CLASSES)
        self.register_buffer("mask", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.ones_like(x[0])
        return super().forward(x * self.mask * torch.rand(()))


class Noisy(nn.Linear):
    """Adds noise to batches of more than two samples, in train mode or always."""

    def __init__(self, in_eval_mode: bool = False) -> None:
        super().__init__(4, CLASSES)
        self.in_eval_mode = in_eval_mode

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 2 and (self.training or self.in_eval_mode):
            x = x + torch.randn_like(x)
        return super().forward(x)


class RarelyNoisy(nn.Linear):
    """Adds noise to batches that hold a mark, which the first batch does not."""

    def forward(self, x: Tensor) -> Tensor:
        if (x == MARK).any():
            x = x + torch.randn_like(x)
        return super().forward(x)


class CountingLargeBatches(nn.Linear):
    """Counts the batches of more than two samples in a plain attribute."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 2:
            self.passes += 1
        return super().forward(x)


class ShiftingLargeBatches(nn.Linear):
    """Shifts batches of more than two samples, in place or not."""

    def __init__(self, in_place: bool) -> None:
        super().__init__(4, CLASSES)
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 2 and self.in_place:
            x += 0.5
        elif len(x) > 2:
            x = x + 0.5
        return super().forward(x)


MARK = 1000
MOVED = "a forward pass of the model changes {}: only the running statistics of BatchNorm may move there"
DRAWN = "a forward pass of the model draws numbers of Python or NumPy, which have no seed here"


@pytest.mark.parametrize(
    ("model", "x", "line"),
    [
        (MaxNorm(4, CLASSES), TABLE, MOVED.format("weight")),
        (Counting(anew=False), TABLE, MOVED.format("passes")),
        (Counting(anew=True), TABLE, MOVED.format("passes")),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(4, CLASSES)), TABLE, "parametrizations.weight.0._u, "),
        (
            nn.Sequential(nn.Embedding(WORDS, 4, max_norm=0.1), nn.Flatten(), nn.Linear(4 * LENGTH, CLASSES)),
            TOKENS,
            MOVED.format("0.weight"),
        ),
        (Drawing(lambda: random.random()), TABLE, DRAWN),
        (Drawing(lambda: np.random.random()), TABLE, DRAWN),
    ],
)
def test_a_forward_pass_that_changes_or_draws_what_no_run_keeps_is_refused(model: nn.Module, x: Any, line: str) -> None:
    with pytest.raises(ModelError) as error:
        world(model, x, Y)
    assert line in str(error.value)


def test_a_mask_that_is_made_in_the_first_pass_and_pytorchs_own_numbers_are_taken() -> None:
    world(Masked(), TABLE, Y)
    model = nn.Sequential(nn.Linear(4, CLASSES), nn.Dropout(0.5))
    before = torch.get_rng_state()
    world(model, TABLE, Y)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_draws_only_in_batches_of_more_than_two_samples_has_a_seed() -> None:
    scores = []
    for seed in (1, 2):
        torch.manual_seed(0)
        federation = world(Noisy(in_eval_mode=True), TABLE, Y)
        torch.manual_seed(seed)
        scores.append(judged(federation))
    assert scores[0] == scores[1]


@pytest.mark.parametrize("evaluates", [False, True], ids=["in training", "in an evaluation"])
def test_what_draws_in_later_batches_alone_is_refused_there(evaluates: bool) -> None:
    x = TABLE.copy()
    x[-3:, 0] = MARK  # a sample of each client, in the last of its batches
    small_batches = {"local": LocalTraining(lr=0.1, batch=2), "evaluation": Evaluation(batch=2)}
    federation = world(RarelyNoisy(4, CLASSES), x, Y, **small_batches)
    with federation, pytest.raises(ModelError, match="draws numbers, but not for a first batch before the training"):
        if evaluates:
            federation.evaluate(federation.start())
        else:
            federation.round(federation.start())


def test_what_keeps_state_only_in_batches_of_more_than_two_samples_is_refused() -> None:
    with pytest.raises(ModelError, match="a forward pass of the model changes passes"):
        world(CountingLargeBatches(4, CLASSES), TABLE, Y)


def test_what_changes_only_batches_of_more_than_two_samples_in_place_has_each_gradient_at_the_samples() -> None:
    models = []
    for in_place in (True, False):
        torch.manual_seed(0)
        federation = world(ShiftingLargeBatches(in_place), TABLE, Y, method=FedSAM())
        models.append(after(federation, 2).w)
    assert torch.equal(*models)
