"""Draws that a trial on a first batch has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..settings.errors import ModelError
from ..vector.randomness import torch_states


@contextmanager
def no_unseen_draws() -> Iterator[None]:
    """Raise `ModelError` if the code inside draws from PyTorch's own generators, which nobody has seeded for it.

    They are seeded for a model or a loss that draws in its first batch. To seed them always would cost time.
    """
    before = torch_states()
    yield
    if not all(map(torch.equal, before, torch_states())):
        raise ModelError(
            "the model, its loss or the method draws numbers, but not for a first batch before the training, so they "
            "have no seed: draw in every batch of two samples or more, or from a generator that is made in each call"
        )
