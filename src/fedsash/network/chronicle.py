"""What a run on a network tells beside its models: its measures, who did what when, and pictures of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .site import Site


class NetworkChronicle:
    """The chronicle of a `site`; with `gradient` each evaluation also says how long the training loss's gradient is."""

    def __init__(self, site: Site, gradient: Callable[[Tensor], float] | None = None) -> None:
        self.site, self._gradient = site, gradient

    def rows(self, round: int, w: Tensor, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A row of the network's measures, and the other rows with the `time` and the `trips`."""
        network = self.measures(round)
        if self._gradient is not None:
            network["gradient_norm"] = self._gradient(w)
        when = {"time": network["time"], "trips": network["trips"]}
        return [network, *(row | when for row in rows)]

    def measures(self, round: int) -> dict[str, Any]:
        """The network's measures so far, as a row."""
        return {"round": round, "model": "model", "split": "network"} | self.site.log.measures(self.site)

    def summary(self, history: list[dict[str, Any]], target: float) -> dict[str, Any]:
        """What the network came to; `ended_early` says why the run is over before its rounds are done."""
        return {
            "target": reached(history, target),
            "ended_early": self.site.why,
            "clients": self.site.size,
            "network": self.site.log.measures(self.site),
        }

    def timeline(self) -> dict[str, Any]:
        """Who did what when, as `timeline.json` has it."""
        return self.site.log.timeline(self.site)


def reached(history: list[dict[str, Any]], target: float) -> dict[str, dict[str, Any]]:
    """By model the round, the time and the client trips of the first evaluation with that accuracy on the test set."""
    found: dict[str, dict[str, Any]] = {}
    for row in history:
        if row["split"] == "test" and row["accuracy"] is not None and row["accuracy"] >= target:
            found.setdefault(row["model"], {key: row[key] for key in ("round", "time", "trips")})
    return found
