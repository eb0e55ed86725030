"""The sliding window over the models of successive rounds: WiMA, and LAWA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import Count
from ..vector import storage as storages
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .base import Average, KeptAs, Retention, check_vector
from .trajectory import Past


@dataclass(frozen=True)
class Window(Average, name="window"):
    """The mean of the last `size` models (WiMA, Caldarola et al. 2023; with `every` > 1 LAWA, Kaddour 2022).

    With W = `size` and all rounds observed, after round t (eq. 4 of WiMA, whose t + 1 is our t):

        wima_t = (1/W) * sum_{tau = t-W+1}^{t} w_tau

    While fewer than W models have been observed, it is the mean of these (the paper leaves this open). Before the
    first one it is the current model. From `start` on, the models after a multiple of `every` rounds are observed.
    `every = 1` is WiMA; `every = k` averages models that are k rounds or steps apart, which is LAWA. IMA sends a window
    of P = `size` models to the clients: see `Broadcast`.

    In a round it only keeps a copy of the new model. Their sum is moved on when the mean is asked for (`MovingSum`), so
    the time of a round hardly depends on the size. It has twice the precision of float64 (see `exact_sums`). So the
    mean is the exact one, rounded, even after 10,000 rounds and after models with values a billion times larger. It is
    rounded to float64 first: where the exact mean is nearly halfway between two numbers of a narrower type, it may be
    the farther one (off by half a last bit and 2^-28 of it for float32, 2^-13 for float16, 2^-16 for bfloat16).
    The mean of one model is that model, bitwise.

    On disk each model is a file, written in the background; the sum lies on the disk, too. Windows of the same slice,
    storage and type share their models, so windows of 5, 10 and 200 models together keep 200.

    With `kept_as = "bfloat16"`, and w' the mean of the rounded models before it is rounded to the model's type, each
    entry is off by at most

        |w' - wima| <= 2^-8 * (1/W) * sum_tau |w_tau| + 2^-134

    for models of float32, float16 or bfloat16. The last term counts only where entries are below 2^-126. The mean of
    one model is then that model, rounded.

    State: `rounds` int64 `[size]`, the round of the model in each slot of a ring, -1 if it is empty; `seen` int64 `[]`,
    how many models were taken so far. The models themselves are in its `past`.
    """

    size: Count
    """how many models the mean has at most"""

    every: Count = 1
    """a model is taken after every so many rounds (LAWA); 1 takes all"""

    start: Count = 1
    """a number r: models are taken from that after r finished rounds on"""

    storage: storages.Storage = field(default="auto", metadata={"numbers": False})
    """where the models lie; it changes no number. There are "device", "host", "disk", and "auto", which takes the disk
    if memory is short (see `storage.rows`)"""

    kept_as: KeptAs = "model"
    """the type in which models are kept: "model", their own one; "bfloat16", each rounded to the nearest bfloat16,
    which takes half the room of float32"""

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        return {"rounds": torch.full((self.size,), -1), "seen": torch.tensor(0)}

    def observes(self, round: int) -> bool:
        return round >= self.start and round % self.every == 0

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["rounds"][int(state["seen"]) % self.size] = round
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        rounds = self.needs(state)
        if len(rounds) == 1:
            return past[rounds[0]].to(w, copy=True)
        assert isinstance(past, Past)
        return past.mean(w)

    def retention(self) -> Retention:
        return Retention(self.size, self.every, self.storage, self.kept_as)

    def needs(self, state: Vectors) -> list[int]:
        return [round for round in state["rounds"].tolist() if round >= 0]

    def count(self, state: Vectors) -> int:
        return len(self.needs(state))

    def retract(self, state: Vectors, round: int, past: Mapping[int, Tensor]) -> None:
        """Remove the model of `round`, in place: its slot becomes empty, and the mean is over the other models.

        Nothing of the model remains in the state. Raises `ValueError` if the window does not hold that round.
        """
        rounds = sorted(self.needs(state))
        check(round in rounds, "Window.retract: round", round, f"not in the window, which holds {rounds or 'none'}")
        state["rounds"][state["rounds"] == round] = -1
