"""What a run will not reach: settings that only matter after its last round. It may be resumed with more rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from ...averages import Average
from ...broadcast import Broadcast
from .settings import Checkpoint


class Averaging(Protocol):
    """A driver, or an experiment before its driver is made."""

    @property
    def averages(self) -> Mapping[str, Average]: ...

    @property
    def broadcast(self) -> Broadcast | None: ...


def beyond(driver: Averaging, checkpoint: Checkpoint, rounds: int) -> Iterator[str]:
    """A line for each average, broadcast and kept state that begins after the last of `rounds` rounds."""
    for name, average in driver.averages.items():
        start = getattr(average, "start", 0)
        if isinstance(start, int) and start > rounds:
            yield f"averages.{name}.start = {start}: this run ends after {rounds} rounds, so it stays the model"
    start = None if driver.broadcast is None else driver.broadcast.start
    if isinstance(start, int) and start > rounds:
        yield f"broadcast.start = {start}: this run ends after {rounds} rounds, so clients receive the model"
    later = [round for round in checkpoint.keep if round > rounds]
    if later:
        yield f"checkpoint.keep = {later}: this run ends after {rounds} rounds, so these states are not saved"
