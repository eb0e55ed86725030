"""The base of all schedulers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from ...basics.typed import typed
from ..site import Site, Steps


@dataclass(frozen=True)
@typed
class Scheduler(ABC):
    """A rule for when clients train, and how the server uses their uploads.

    `schedule_counts` says how many rounds have finished for a schedule of the clients (`LocalTraining.schedule`):
    "trainings" are each client's own before this one, "steps" are those that the server had made when it sent the
    client the model from which it trains.

    A scheduler holds settings only; the process that `run` returns holds what a run remembers. It calculates with
    models by + - * / only, with numbers or other models, so that a run can be saved (see `network.vectors`). The server
    makes at most one step in each event.
    """

    _: KW_ONLY
    schedule_counts: Literal["trainings", "steps"] = "trainings"

    @abstractmethod
    def run(self, site: Site) -> Steps:
        """The server's process, which ends when the site's run is over.

        Raises `SettingError` if the scheduler does not fit the clients.
        """
