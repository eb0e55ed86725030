"""What a federated method may change: the local step, what server and clients remember, what is sent up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

Vectors = dict[str, Tensor]
"""Named tensors: `[D]` (or any shape) at the server, with a leading `C` for the clients of a block."""

Upload = Vectors
"""What clients send: `"delta"` = w_local - w_sent `[C, D]`, and whatever else the method needs the mean of."""

Scalar = float | Tensor
"""One number a client: a float for a single client, a tensor `[C, 1]` for a block."""


@dataclass
class Step:
    """One local step of C clients side by side.

    `w` `[C, D]` is where the clients are, `sent` `[D]` what they received, `lr` the step's learning rate; `shared` are
    the method's vectors at the server (as sent), `mine` those of the clients, `[C, ...]`.
    """

    w: Tensor
    sent: Tensor
    lr: Scalar
    shared: Vectors
    mine: Vectors
    grad: Callable[[Tensor], Tensor]
    """`grad(w)`: the gradient `[C, D]` of each client's mean loss over this step's batch at any `w` `[C, D]`; asked
    again, it uses the same samples, the same augmentation and the same dropout."""


@dataclass
class Local:
    """The end of the local training of C clients, as `Method.finish` sees it.

    `w` `[C, D]` is where they ended, `sent` `[D]` what they received, `steps` how many steps each took and `lr_sum` the
    sum of its learning rates (steps * lr where the rate is constant).
    """

    w: Tensor
    sent: Tensor
    steps: Scalar
    lr_sum: Scalar
    shared: Vectors
    mine: Vectors
    full_grad: Callable[[Tensor], Tensor]
    """`full_grad(w)`: the gradient `[C, D]` of each client's mean loss over all its samples at `w` `[C, D]`."""


@dataclass(frozen=True)
class Method:
    """A federated method; as it stands it is FedAvg. A method overrides only what it changes.

    `weighting` says how the uploads of a round are averaged: `"samples"` (p_i = n_i / sum of the n of the clients that
    answered) or `"uniform"` (1/s). Uploads named in `uniform` are averaged uniformly either way.
    """

    _: KW_ONLY
    weighting: Literal["samples", "uniform"] = "samples"
    uniform: ClassVar[tuple[str, ...]] = ()

    def shared(self, w: Tensor) -> Vectors:
        """What the server remembers for the method at the start, given the first model `w` `[D]`."""
        return {}

    def mine(self, w: Tensor) -> Vectors:
        """What one client remembers before its first round."""
        return {}

    def direction(self, step: Step) -> Tensor:
        """The direction `[C, D]` that the local optimiser follows downhill; here the plain gradient."""
        return step.grad(step.w)

    def finish(self, local: Local) -> tuple[Upload, Vectors]:
        """What each client sends up, and what it remembers."""
        return {"delta": local.w - local.sent}, {}

    def absorb(self, shared: Vectors, mean: Vectors, fraction: float) -> Vectors:
        """What the server remembers after a round, given the mean uploads and s/N, the fraction of clients in them."""
        return shared


def zeros(w: Tensor) -> Tensor:
    """A vector of zeros like `w`."""
    return torch.zeros_like(w)
