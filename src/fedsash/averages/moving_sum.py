"""The sum of the models in a window, which is moved on when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from ..vector import exact_sums
from ..vector.pieces import Pieces


class MovingSum:
    """The exact sum of the models `[d]` of some rounds (see `exact_sums`). It follows from them, so nobody saves it.

    When it is asked for, it adds the models that have come and subtracts those that have gone, or adds up all models
    anew where that is less work. So a round costs at most one addition and one subtraction, whatever the number of
    models, and nothing as long as nobody asks. `zeros(like)` gives room for the sum of models like `like`.
    """

    def __init__(self, zeros: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        self._zeros = zeros
        self._rounds: set[int] = set()
        self._asked: set[int] = set()
        self._often = False
        self._sum: tuple[Tensor, Tensor] | None = None

    @property
    def moves(self) -> bool:
        """Whether models that are dropped are subtracted: it is asked for often."""
        return self._often and bool(self._rounds)

    def clear(self) -> None:
        """Begin anew with the next question."""
        self._rounds = set()
        self._sum = None

    def mean(self, rounds: Collection[int], model: Callable[[int], Tensor], like: Tensor) -> Tensor:
        """The mean `[d]` of the models of these rounds, rounded once to the type of `like`, on its device.

        `model(round)` gives their models `[d]`, and those of all rounds that are in the sum.
        """
        held = set(rounds)
        device = exact_sums.exact_device(like)
        come = held - self._rounds
        gone = self._rounds - held
        anew = self._sum is None or self._sum[0].device != device or len(come) + len(gone) >= len(held)
        plus = _models(model, held if anew else come)
        minus = _models(model, set() if anew else gone)
        self._rounds = set()  # who interrupts the addition finds no sum
        if anew:
            self._empty(like, device)
        assert self._sum is not None
        exact_sums.add(*self._sum, plus, minus)
        self._often = 2 * len(held - self._asked) < len(held)
        self._asked = held
        self._rounds = held
        return exact_sums.mean(*self._sum, len(held), like)

    def _empty(self, like: Tensor, device: torch.device) -> None:
        """Make it the sum of no models, in the room that it has if that is on the device."""
        if self._sum is None or self._sum[0].device != device:
            with torch.inference_mode(False):  # else it could not be moved on outside of that mode
                self._sum = self._zeros(like)
        else:
            for part in self._sum:
                part.zero_()

    def lose(self, models: Mapping[int, Tensor], held: Collection[int], coming: Mapping[int, Pieces]) -> None:
        """Take out `models` that are about to be dropped; those of the rounds `held` will be asked for from now on.

        If it was asked for often, it subtracts them. If it lacks nothing but the newest model, `coming`, that is added
        in the same pass over the memory.
        """
        gone = self._rounds & models.keys()
        if not gone or self._sum is None:
            return
        if not self._often:
            self.clear()
            return
        lacks = set(held) - self._rounds
        added = coming if lacks == coming.keys() else {}
        minus = _models(models.__getitem__, gone)
        rounds = self._rounds - gone | added.keys()
        self._rounds = set()
        exact_sums.add(*self._sum, list(added.values()), minus)
        self._rounds = rounds


def _models(model: Callable[[int], Tensor], rounds: Collection[int]) -> list[Pieces]:
    return [Pieces.of(model(round)) for round in sorted(rounds)]
