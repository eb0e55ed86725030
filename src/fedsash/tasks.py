"""The tasks: the loss of a sample, and which predictions are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Any, Tensor], Tensor]
"""`loss(output, y)`: one number for each sample, `[B]`."""

PAD = 0
"""The padding character of a sequence; it is neither learned nor counted."""


class Classification:
    """One label for each sample: `output` `[B, classes]`, `y` `[B]`."""

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy of each sample, `[B]`."""
        return F.cross_entropy(output, y, reduction="none")

    def score(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The number of right predictions and of all predictions for each sample, `[B]` each."""
        right = output.argmax(dim=-1) == y
        return right, right | True


class NextCharacter:
    """The next character at each position of a sequence: `output` `[B, T, characters]`, `y` `[B, T]`; 0 is padding."""

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy of each sequence, `[B]`: the sum over its real characters divided by T, as in FedJAX."""
        return F.cross_entropy(output.movedim(-1, 1), y, reduction="none", ignore_index=PAD).mean(dim=1)

    def score(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The number of right predictions and of all real characters in each sequence, `[B]` each."""
        real = y != PAD
        return ((output.argmax(dim=-1) == y) & real).sum(dim=1), real.sum(dim=1)


Task: TypeAlias = Classification | NextCharacter
