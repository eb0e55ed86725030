"""What a run on a network records besides its models: metrics of the network, a timeline, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..evaluation import Decision, History, NetworkLoad, PrivacySpent, Record, Score
from ..tasks import Criterion
from .site import Site


class NetworkChronicle:
    """The chronicle of a `site`. With `gradient`, each evaluation also records the length of the loss's gradient."""

    def __init__(self, site: Site, gradient: Callable[[Tensor], float] | None = None) -> None:
        self.site = site
        self._gradient = gradient

    def records(self, round: int, w: Tensor, records: Sequence[Record]) -> list[Record]:
        """What the network has carried so far, then the given records with `time` and `trips`."""
        load = self.load(round)
        if self._gradient is not None:
            measures = dict(load.measures)
            measures["gradient_norm"] = self._gradient(w)
            load = replace(load, measures=measures)
        timed: list[Record] = [load]
        for record in records:
            if isinstance(record, Score | Decision | PrivacySpent):
                record = replace(record, time=load.time, trips=load.trips)
            timed.append(record)
        return timed

    def load(self, round: int) -> NetworkLoad:
        """What the network has carried so far."""
        return NetworkLoad(round=round, measures=self.site.measures())

    def summary(self, history: History, criterion: Criterion) -> dict[str, Any]:
        """The network's part of the summary; `ended_early` says why the run ended before its last round."""
        return {
            "target": reached(history, criterion),
            "ended_early": self.site.why,
            "clients": self.site.size,
            "network": self.site.measures(),
        }

    def timeline(self) -> dict[str, Any]:
        """The content of `timeline.json`: what each client did and when."""
        return self.site.timeline()


def reached(history: History, criterion: Criterion) -> dict[str, dict[str, Any]]:
    """For each model, the round, time and trips of the first evaluation that reaches the target."""
    reached_by: dict[str, dict[str, Any]] = {}
    for model, score in history.reached(criterion).items():
        reached_by[model] = {"round": score.round, "time": score.time, "trips": score.trips}
    return reached_by
