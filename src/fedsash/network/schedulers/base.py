"""What a scheduler is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ...basics.typed import typed
from ..site import Site, Steps


@dataclass(frozen=True)
@typed
class Scheduler(ABC):
    """Who trains when, and what the server makes of what comes: settings only, a run's memory is in its process.

    Its sums with models are + - * / by numbers and by each other, so that a run can be saved (see `network.vectors`);
    the server makes at most one step in an event.
    """

    @abstractmethod
    def run(self, site: Site) -> Steps:
        """The server's process: it ends when the site's run is over. `ValueError` if it does not fit the clients."""
