"""The base of all schedulers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ...basics.typed import typed
from ..site import Site, Steps


@dataclass(frozen=True)
@typed
class Scheduler(ABC):
    """A rule for when clients train, and how the server uses their uploads.

    A scheduler holds settings only; the process that `run` returns holds what a run remembers. It calculates with
    models by + - * / only, with numbers or other models, so that a run can be saved (see `network.vectors`). The server
    makes at most one step in each event.
    """

    @abstractmethod
    def run(self, site: Site) -> Steps:
        """The server's process, which ends when the site's run is over.

        Raises `SettingError` if the scheduler does not fit the clients.
        """
