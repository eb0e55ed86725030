"""What an average of the trajectory is: which models it takes, what it remembers, what it shows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.errors import RunError, check
from ..basics.layout import ModelSlice
from ..basics.storage import Storage
from ..basics.typed import typed


@dataclass(frozen=True)
class Retention:
    """The most of the past that an average needs at once: the last `size` models of every `every`-th round, and where
    they are to lie (see `storage.rows`)."""

    size: int
    every: int = 1
    storage: Storage = "auto"


@dataclass(frozen=True)
@typed
class Average(ABC):
    """A mean of the models `w_1, w_2, ...` that training passes through, `w_t` being the model after round t.

    An average is a value; what it has seen is in its state. `w` is always one flat vector `[d]`, and an average knows
    no more of it than that: `part` names the slice of the model that an `Observer` gives it (WiMA, Table 5):
    `"all"`, `"classifier"`, `"extractor"`, or a tuple of parameter names. The initial model `w_0` is never observed.
    No average keeps a reference to a vector that it is given, or gives one out.

    An average that must see models again says at most how many (`retention`) and, at any time, which (`needs`).
    `Observers` keep them, once for all averages of the same slice, and give them to it as `past`, by their rounds.
    """

    _: KW_ONLY
    part: ModelSlice = "all"

    @abstractmethod
    def init(self, w: Tensor) -> Vectors:
        """The state before the first round, for models like `w` `[d]`."""

    @abstractmethod
    def take(self, state: Vectors, w: Tensor, round: int, past: Mapping[int, Tensor]) -> None:
        """Put the model `w` `[d]` of `round` into the state, in place; `past` is what it needed before the round.

        Rounds come in increasing order, those only that it `observes`, and every value of `w` is finite.
        """

    @abstractmethod
    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        """The average `[d]` of what has been observed, at least one model; `w` gives type and device."""

    def retention(self) -> Retention | None:
        """How much of the past it needs at most; None, the default: nothing."""
        return None

    def needs(self, state: Vectors) -> Collection[int]:
        """The rounds whose models it must be given again."""
        return ()

    def observes(self, round: int) -> bool:
        """Whether the model after `round` finished rounds is one that this average takes."""
        return round >= 1

    def value(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        """The average as a fresh vector `[d]`, of the type of `w`.

        `w` is the current model; it is the answer (a copy of it) as long as nothing has been observed.
        """
        return self.mean(state, w.detach(), past) if self.count(state) else w.detach().clone()

    def count(self, state: Vectors) -> int:
        """How many models are in the average."""
        return int(state["seen"])

    def retract(self, state: Vectors, round: int, past: Mapping[int, Tensor]) -> Vectors:
        """Take the model of `round` out again; raises `ValueError` where single models are not kept."""
        raise RunError(f"{type(self).__name__}.retract: it keeps no single models; only a Window can give one up")


def check_names(averages: Iterable[str]) -> None:
    """Raise `ValueError` for an average whose name can't be a file's, or is taken."""
    right = 'must be a name of letters, digits, _ and -, other than "model", that doesn\'t end in "-best"'
    for name in averages:
        taken = name == "model" or name.endswith("-best")
        check(bool(re.fullmatch(r"[\w-]+", name)) and not taken, "averages", name, right)


def check_vector(w: Tensor) -> None:
    """Raise `ValueError` unless `w` is one flat vector of floating-point numbers."""
    check(w.dim() == 1 and w.is_floating_point(), "w", f"{w.dtype} {list(w.shape)}", "must be one flat float vector")
