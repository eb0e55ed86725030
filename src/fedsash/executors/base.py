"""What an engine is: settings that say where and how clients train, and that open an executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from ..basics.errors import check
from ..basics.typed import typed
from ..exchange import Executor
from .training import ClientWork


@dataclass(frozen=True)
@typed
class Engine(ABC):
    """Where the clients of a round are trained, and how; it changes the speed, not the numbers.

    A round's uploads are summed in `pieces` P fixed pieces (see `UploadSums`): on several machines each can then be
    summed where its clients are. The bytes of a run depend on P.
    """

    _: KW_ONLY
    pieces: int = 1

    def __post_init__(self) -> None:
        check(self.pieces >= 1, f"{type(self).__name__}.pieces", self.pieces, "must be at least 1")

    @abstractmethod
    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor at work, and lines that say what was chosen and why.

        `rounds` is the length of the run, if it is known.
        """

    def settled(self, began: Mapping[str, Any]) -> Engine:
        """This engine with what it leaves open as an executor has `described` it; itself where the two disagree."""
        return self
