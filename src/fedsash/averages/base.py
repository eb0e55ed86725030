"""The base class of averages: which models an average takes, what it remembers, and its value."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..settings.errors import RunError, check
from ..settings.setting import Accepts, Setting, default
from ..vector.arrays import Vectors
from ..vector.layout import ModelSlice
from ..vector.pieces import Pieces
from ..vector.storage import Storage

LONGEST_NAME = 200
"""Bytes of an average's name. Files are named after it, with up to 25 bytes more, and file systems take 255."""


KeptAs = Literal["model", "bfloat16"]


@dataclass(frozen=True)
class Retention:
    """How many past models an average needs at most: the last `size` models of every `every`-th round.

    `storage` says where they lie (see `storage.rows`), and `kept_as` in which type: the model's own one, or bfloat16.
    """

    size: int
    every: int = 1
    storage: Storage = "auto"
    kept_as: KeptAs = "model"


@dataclass(frozen=True)
class Average(Setting, ABC):
    """A mean of the models `w_1, w_2, ...` of a training; `w_t` is the model after round t.

    An average object holds settings only; its state holds what it has seen. `w` is always one flat vector `[d]`.
    An `Observer` cuts out the slice that is averaged, `part`. The initial model `w_0` is never observed. An average
    keeps and returns copies only, never a reference to a vector.

    Some averages must see past models again. `retention` says how many at most, and `needs` says which ones now.
    `Observers` keep these models, once for all averages of the same slice. The average receives them as `past`, a
    mapping from rounds to models `[d]`.
    """

    extrapolates: ClassVar[bool] = False
    """Whether some models have negative weights, so that its value may lie outside the range of all models. The weights
    sum to 1 all the same."""

    _: KW_ONLY
    part: Accepts[ModelSlice, list[str]] = default("all")
    """the slice of the model that is averaged (WiMA, Table 5): "all", "classifier", "extractor", or names of parameters
    and modules"""

    buffers: Literal["average", "latest", "re-estimate"] = "average"
    """which running statistics of BatchNorm it has: `"average"`, the same mean of the models' statistics; `"latest"`,
    those of the current model, as always in an average that extrapolates, such as `BEMA`; `"re-estimate"`, new ones of
    some data, where it is evaluated or applied (as `torch.optim.swa_utils.update_bn`). A broadcast sends it with the
    statistics of the current model"""

    @abstractmethod
    def init(self, w: Tensor) -> Vectors:
        """The state before the first round, for models like `w` `[d]`."""

    @abstractmethod
    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        """Put the model `w` `[d]` of `round` into the state, in place; `past` holds the models that it needed before.

        `w` lies in pieces, which are not copies; `w.whole()` is one flat tensor `[d]`.

        It is called with increasing rounds, only with those that it `observes`, and only with finite values.
        """

    @abstractmethod
    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        """The average `[d]` of the observed models (at least one), with the type and on the device of `w` `[d]`."""

    def retention(self) -> Retention | None:
        """How many past models it needs at most; None (the default) means none."""
        return None

    def needs(self, state: Vectors) -> Collection[int]:
        """The rounds whose models it must receive again."""
        return ()

    def in_a_loop(self) -> Average:
        """This average with the settings that "auto" means in a `Tracker`, where it may observe every step."""
        return self

    @property
    def averages_statistics(self) -> bool:
        """Whether it has a mean of BatchNorm's statistics. With negative weights a variance could be negative."""
        return self.buffers == "average" and not self.extrapolates

    def observes(self, round: int) -> bool:
        """Whether this average takes the model after `round` finished rounds."""
        return round >= 1

    def value(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        """The average as a new vector `[d]`, with the type of `w`.

        `w` `[d]` is the current model. While no model has been observed, the value is a copy of `w`.
        """
        if self.count(state) == 0:
            return w.detach().clone()
        return self.mean(state, w.detach(), past)

    def count(self, state: Vectors) -> int:
        """How many models are in the average: the tensor `seen` of its state, unless overridden."""
        if "seen" not in state:
            raise TypeError(f"{type(self).__name__}.init must return a tensor `seen`, the number of observed models")
        return int(state["seen"])

    def take_over(self, state: Vectors, w: Tensor, count: int) -> None:
        """Make the state, in place, that of an average `w` `[d]` of `count` models, at least one, from elsewhere.

        Raises `RunError` if its state needs more than these.
        """
        raise RunError(f"{type(self).__name__}: it can't go on from an average alone; EMA, PowerEMA and SWA can")

    def retract(self, state: Vectors, round: int, past: Mapping[int, Tensor]) -> None:
        """Remove the model of `round` from the average, in place; raises `RunError` if it keeps no single models."""
        raise RunError(f"{type(self).__name__}.retract: it keeps no single models; only a Window can remove one")


def check_names(averages: Iterable[str]) -> None:
    """Raise `ValueError` if the name of an average can't be a file name, or is reserved."""
    requirement = 'must be a name of letters, digits, _ and -, other than "model", that doesn\'t end in "-best"'
    for name in averages:
        valid = isinstance(name, str) and bool(re.fullmatch(r"[\w-]+", name))
        check(valid, "averages", name, requirement)
        check(len(name.encode()) <= LONGEST_NAME, "averages", name, f"must have at most {LONGEST_NAME} bytes")
        reserved = name == "model" or name.endswith("-best")
        check(not reserved, "averages", name, requirement)


def check_vector(w: Tensor) -> None:
    """Raise `ValueError` unless `w` is one flat vector `[d]` of floating-point numbers."""
    check(w.dim() == 1 and w.is_floating_point(), "w", f"{w.dtype} {list(w.shape)}", "must be one flat float vector")


def by_name(averages: Average | Mapping[str, Average], owner: str = "Tracker") -> dict[str, Average]:
    """Averages by their names; one alone is called "average". Raises `SettingError` of the `owner` for a wrong one."""
    named = dict(averages) if isinstance(averages, Mapping) else {"average": averages}
    requirement = "must be an average, such as Window(100), or a dict of averages by their names"
    for average in named.values():
        check(isinstance(average, Average), f"{owner}.averages", average, requirement)
    check(len(named) > 0, f"{owner}.averages", averages, "must be at least one average")
    check_names(named)
    return named
