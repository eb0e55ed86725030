"""Which entries of a model clients send, and which stay with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .arrays import Vectors
from .errors import ModelError, shortened
from .layout import Layout

Buffers = Literal["refuse", "average", "local", "local_norm"]
"""What becomes of the running statistics of BatchNorm layers (see `Federation`)."""

OWN, STATISTICS = "own", "statistics"
"""The names of the entries that stay with a client in its client state, and of the statistics in its upload."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """How the clients of a federation share a model `[D]` of `layout`.

    The first `shared` entries are the clients' common parameters: methods, aggregations and server optimisers see these
    only. Entries from `own` on stay with each client, as client state. With `"average"` the entries in between are
    statistics, whose mean over the clients' uploads is the model's.

    Raises `ModelError` if there are statistics, and `buffers` is `"refuse"`.
    """

    layout: Layout
    buffers: Buffers

    def __post_init__(self) -> None:
        if self.buffers == "refuse" and self.layout.size > self.layout.trained:
            names = ", ".join(name or "the model itself" for name in self.layout.norms)
            raise ModelError(
                f"BatchNorm tracks statistics of each client's data: {shortened(names)}; set buffers to 'average', "
                "'local' or 'local_norm', or convert the model with fedsash.models.group_norm(module)"
            )

    @property
    def notes(self) -> list[str]:
        """A line about what clients keep, if they keep anything."""
        kept = "statistics" if self.shared == self.layout.trained else "statistics and affine parameters"
        line = (
            f"clients keep the {kept} of BatchNorm: a test set meets those of the start, only clients score with theirs"
        )
        return [line] if self.own < self.layout.size else []

    @property
    def shared(self) -> int:
        """The number of common parameters."""
        return self.layout.affine if self.buffers == "local_norm" else self.layout.trained

    @property
    def own(self) -> int:
        """The first entry that stays with each client; D if none does."""
        return self.layout.size if self.buffers in ("refuse", "average") else self.shared

    @property
    def common(self) -> Layout:
        """The layout of the common parameters."""
        return self.layout.between(0, self.shared)

    def head(self, w: Tensor) -> Tensor:
        """The common parameters of a model `[..., D]`, as a view."""
        return w if self.shared == self.layout.size else w[..., : self.shared]

    def with_head(self, head: Tensor, w: Tensor) -> Tensor:
        """A model `[D]` with other common parameters."""
        return head if self.shared == self.layout.size else torch.cat([head, w[self.shared :]])

    def kept(self, w: Tensor) -> Vectors:
        """What stays with a client, from a model `[..., D]`: client state."""
        return {} if self.own == self.layout.size else {OWN: w[..., self.own :].clone()}

    def change(self, delta: Tensor, upload: Vectors) -> Tensor:
        """The change of whole models `[..., D]`: `delta` of the common parameters, and the statistics of an upload.

        What stays with the clients does not change.
        """
        rest = self.layout.size - self.shared
        if not rest:
            return delta
        zeros = delta.new_zeros(()).expand(*delta.shape[:-1], rest)
        return torch.cat([delta, upload.get(STATISTICS, zeros)], dim=-1)
