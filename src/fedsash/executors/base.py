"""The base class of engines: settings that say where and how clients train, and that open an executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from ..exchange import Executor
from ..settings.limits import Count
from ..settings.setting import Setting
from .gradients import Precision
from .training import ClientWork


@dataclass(frozen=True)
class Engine(Setting, ABC):
    """Where and how the clients of a round are trained.

    But for `precision`, it changes results by rounding only, which a training can amplify. A round's uploads are summed
    in `pieces` P fixed pieces (see `UploadSums`). On several machines, each piece can be summed where its clients are.
    The bytes of a run depend on P.

    With `precision = "bfloat16"` the forward and backward passes of local training compute in bfloat16, which has 8
    significant bits, where PyTorch's autocast does so. Models, updates, sums, averages, client state, losses and
    evaluations stay as they are.
    """

    sums: ClassVar[bool] = False
    """Whether its executors answer with the sums of pieces, in place of each client's upload."""

    _: KW_ONLY
    pieces: Count = 1
    precision: Precision = "full"

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
