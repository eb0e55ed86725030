"""Before the first round: a forward pass moves nothing that a run does not keep, and draws with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.errors import ModelError
from support.problems import CLASSES, LENGTH, TABLE, TOKENS, WORDS, Y, world


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
