"""What a scheduler is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..site import Site, Steps


@dataclass(frozen=True)
class Scheduler(ABC):
    """Who trains when, and what the server makes of what comes: settings only, a run's memory is in its process.

    `rounds` says whether the server moves in the federation's own rounds; then any method, server optimiser and
    aggregation goes with it.
    """

    rounds: ClassVar[bool] = False

    @abstractmethod
    def run(self, site: Site) -> Steps:
        """The server's process: it ends when the site's run is over. `ValueError` if it does not fit the clients."""
