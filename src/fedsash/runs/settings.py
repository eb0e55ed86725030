"""The settings of a run in addition to its federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..settings.errors import check_count
from ..settings.limits import Count
from ..settings.setting import Accepts, Setting, default


@dataclass(frozen=True)
class Checkpoint(Setting):
    """When the state is saved, besides the end of a run, a stop and a failure. The last two states are kept."""

    every: Count = 50
    """after how many rounds"""
    keep: Accepts[tuple[int, ...], Sequence[int]] = default(())
    """rounds after which it is saved, too, and never removed, so that other runs can start from there"""

    def __post_init__(self) -> None:
        for round in self.keep:
            check_count("Checkpoint.keep", round)

    def due(self, round: int, rounds: int) -> bool:
        """Whether the state after `round` is saved in a run of `rounds` rounds."""
        return round % self.every == 0 or round in self.keep or round == rounds


USUAL = Checkpoint()
"""Every 50 rounds and at the end."""
