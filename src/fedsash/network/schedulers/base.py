"""The base of all schedulers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from ...settings.setting import Setting
from ..learning import AnyModel
from ..site import Site, Steps
from ..trip import Trip


@dataclass(frozen=True)
class Scheduler(Setting, ABC):
    """A rule for when clients train, and how the server uses their uploads.

    A scheduler holds settings only; the process that `run` returns holds what a run remembers. It calculates with
    models by + - * / only, with numbers or other models, so that a run can be saved (see `network.vectors`). The server
    makes at most one step in each event.
    """

    _: KW_ONLY
    schedule_counts: Literal["trainings", "steps"] = "trainings"
    """which rounds have finished for a schedule of the clients (`LocalTraining.schedule`): "trainings" are each
    client's own before this one, also those that were lost on the way; "steps" are those that the server had made when
    it sent the client the model from which it trains"""

    @abstractmethod
    def run(self, site: Site) -> Steps:
        """The server's process, which ends when the site's run is over.

        Raises `SettingError` if the scheduler does not fit the clients.
        """


def independent(site: Site, take: Callable[[Trip, AnyModel], None]) -> Steps:
    """Clients train independently, each from the newest model; `take` is given every upload that can be used."""
    for client in range(site.size):
        site.env.process(_on_its_own(site, client, take))
    yield site.over


def _on_its_own(site: Site, client: int, take: Callable[[Trip, AnyModel], None]) -> Steps:
    while site.running:
        yield from site.wait([client])
        # a trip that is over is not held here: its models would be saved on
        _arrived(site, (yield from site.trip(client, site.newest())), take)
        yield site.env.timeout(0)  # first count all uploads that arrive at this instant


def _arrived(site: Site, trip: Trip, take: Callable[[Trip, AnyModel], None]) -> None:
    w = site.model(trip) if site.running else None
    if w is not None:
        take(trip, w)
