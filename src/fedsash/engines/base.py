"""The base class of engines: settings that say where and how clients train, and that open an executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from ..client.messages import Executor
from ..settings.limits import Count
from ..settings.setting import Setting
from .gradients import Precision
from .training import ClientWork


@dataclass(frozen=True)
class Engine(Setting, ABC):
    """Where and how the clients of a round are trained.

    But for `precision`, it changes results by rounding only, which a training can amplify. On several machines, each
    piece of the uploads can be summed where its clients are. With `precision = "bfloat16"` models, updates, sums,
    averages, client state, losses and evaluations stay as they are.
    """

    sums: ClassVar[bool] = False
    """Whether its executors answer with the sums of pieces, in place of each client's upload."""

    _: KW_ONLY
    pieces: Count = 1
    """in how many fixed pieces P a round's uploads are summed (see `Sums`); the bytes of a run depend on P"""
    precision: Precision = "full"
    """how the forward and backward passes of local training compute: "full": in the model's own type; "bfloat16": in
    bfloat16, which has 8 significant bits, where PyTorch's autocast does so"""

    @property
    def here(self) -> Engine:
        """An engine that gives the same bytes in this process, and answers with single uploads; itself if it does."""
        return self

    def holds(self, size: int) -> bool:
        """Whether its executors keep a client's state of `size` bytes where it was made, and answer with handles."""
        return False

    @abstractmethod
    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """A running executor for `work`, and lines that say what was chosen and why.

        `rounds` is the length of the run, if it is known.
        """

    def settled(self, began: Mapping[str, Any]) -> Engine:
        """This engine with "auto" settings replaced by those that an executor `described`.

        If other settings differ, it is this engine, unchanged.
        """
        return self
