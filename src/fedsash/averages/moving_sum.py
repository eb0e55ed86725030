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
        """The rounds whose models are in the sum; empty where it is not valid."""
        self._last_rounds: set[int] = set()
        """The rounds of the last call of `mean`."""
        self._often = False
        """Whether `mean` is called often: more than half of its models were in the call before, too."""
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
        """The mean `[d]` of the models of these rounds in the type and on the device of `like` (see `exact_sums.mean`).

        `model(round)` gives their models `[d]`, and those of all rounds that are in the sum.
        """
        wanted = set(rounds)
        device = exact_sums.exact_device(like)
        to_add = wanted - self._rounds
        to_subtract = self._rounds - wanted
        elsewhere = self._sum is None or self._sum[0].device != device
        anew = elsewhere or len(to_add) + len(to_subtract) >= len(wanted)
        if anew:
            to_add = wanted
            to_subtract = set()
        plus = _models(model, to_add)
        minus = _models(model, to_subtract)
        self._rounds = set()  # an interrupt during the addition leaves no valid sum
        if anew:
            self._empty(like, device)
        assert self._sum is not None
        exact_sums.add(*self._sum, plus, minus)
        self._often = 2 * len(wanted - self._last_rounds) < len(wanted)
        self._last_rounds = wanted
        self._rounds = wanted
        return exact_sums.mean(*self._sum, len(wanted), like)

    def _empty(self, like: Tensor, device: torch.device) -> None:
        """Make it the sum of no models, in the room that it has if that is on the device."""
        if self._sum is None or self._sum[0].device != device:
            with torch.inference_mode(False):  # else it could not be moved on outside of that mode
                self._sum = self._zeros(like)
        else:
            for part in self._sum:
                part.zero_()

    def lose(self, models: Mapping[int, Tensor], rounds: Collection[int], coming: Mapping[int, Pieces]) -> None:
        """Take out `models` that are about to be dropped. The mean will be over the models of `rounds` from now on.

        If it was asked for often, it subtracts them. If it lacks nothing but the newest model, `coming`, that is added
        in the same pass over the memory.
        """
        to_subtract = self._rounds & models.keys()
        if not to_subtract or self._sum is None:
            return
        if not self._often:
            self.clear()
            return
        lacking = set(rounds) - self._rounds
        added = coming if lacking == coming.keys() else {}
        minus = _models(models.__getitem__, to_subtract)
        new_rounds = (self._rounds - to_subtract) | added.keys()
        self._rounds = set()  # an interrupt during the addition leaves no valid sum
        exact_sums.add(*self._sum, list(added.values()), minus)
        self._rounds = new_rounds


def _models(model: Callable[[int], Tensor], rounds: Collection[int]) -> list[Pieces]:
    return [Pieces.of(model(round)) for round in sorted(rounds)]
