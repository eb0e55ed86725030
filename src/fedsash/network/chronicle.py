"""What a run on a network records besides its models: metrics of the network, a timeline, and pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..evaluation import Curves
from ..tasks import Criterion
from .site import Site


class NetworkChronicle:
    """The chronicle of a `site`. With `gradient`, each evaluation also records the length of the loss's gradient."""

    def __init__(self, site: Site, gradient: Callable[[Tensor], float] | None = None) -> None:
        self.site, self._gradient = site, gradient

    def rows(self, round: int, w: Tensor, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One row of network metrics, then the given rows with `time` and `trips` added."""
        network = self.measures(round)
        if self._gradient is not None:
            network["gradient_norm"] = self._gradient(w)
        when = {"time": network["time"], "trips": network["trips"]}
        return [network, *(row | when for row in rows)]

    def measures(self, round: int) -> dict[str, Any]:
        """The network's metrics so far, as one row."""
        return {"round": round, "model": "model", "split": "network"} | self.site.measures()

    def summary(self, history: list[dict[str, Any]], criterion: Criterion) -> dict[str, Any]:
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


def reached(history: list[dict[str, Any]], criterion: Criterion) -> dict[str, dict[str, Any]]:
    """For each model, the round, time and trips of the first evaluation that reaches the target.

    It is that on the test set or, without one, on held-out data (see `Curves`).
    """
    found: dict[str, dict[str, Any]] = {}
    split = Curves.of(history, criterion).split
    for row in history:
        if row["split"] == split and criterion.reached(row.get(criterion.name)):
            found.setdefault(row["model"], {key: row[key] for key in ("round", "time", "trips")})
    return found
