"""Tasks over sequences: the next character, and the next token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..settings.errors import check
from .base import Task, refuse_beyond
from .metrics import Accuracy, Metric, Perplexity

PAD = 0
"""The padding character of a sequence; it is neither learned nor counted."""


@dataclass(frozen=True)
class NextToken(Task, name="next_token"):
    """The next token at each position of a sequence: outputs `[B, T, tokens]`, `y` `[B, T]`.

    The loss of a sequence is the sum of the cross-entropies of its real tokens, divided by T, as in FedJAX.
    """

    padding: int = -100
    """the label of positions that are neither learned nor counted"""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Accuracy(), "perplexity": Perplexity()}

    @property
    def ignored_label(self) -> int | None:
        return self.padding

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss of each sequence, `[B]`."""
        return F.cross_entropy(output.movedim(-1, 1), y, reduction="none", ignore_index=self.padding).mean(dim=1)

    def predicted(self, output: Tensor) -> Tensor:
        return output.argmax(-1)

    def check_labels(self, y: Tensor, classes: int, place: str) -> None:
        super().check_labels(y, classes, place)
        check(y.dim() == 2, place, list(y.shape), "must be [samples, T], one token for each position")
        refuse_beyond(y, classes, place, self.padding)

    def right(self, y: Tensor, classes: int) -> tuple[int, ...]:
        return (*y.shape, classes)

    def fits(self, output: Tensor, y: Tensor, classes: int) -> bool:
        """Whether the outputs are `[B, T, tokens]`; there may be more tokens than occur in the labels."""
        return output.dim() == 3 and output.shape[:2] == y.shape and output.shape[2] >= classes


@dataclass(frozen=True)
class NextCharacter(NextToken, name="next_character"):
    """The next character at each position of a sequence; 0 is padding. Only the accuracy is reported."""

    padding: int = PAD

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Accuracy()}
