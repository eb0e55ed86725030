"""A log of what happened on a network: sums for the metrics, and data for the pictures."""

from __future__ import annotations

from typing import Any

from .links import Channel
from .trip import Trip

INTERVALS = 20_000
"""At most so many intervals of clients are kept; further ones are only counted."""
POINTS = 4_000
"""At most so many points of a quantity over time are kept."""


class Series:
    """Pairs (time, value), at most `POINTS` of them. When there are more, every other pair is dropped from then on."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._every = 1
        self._skipped = 0

    def add(self, time: float, value: float) -> None:
        """Add the next point, unless it is one of those that are dropped."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append((time, value))
        if len(self.points) > POINTS:
            self.points = self.points[::2]
            self._every = 2 * self._every


class Log:
    """The sums of a run so far, its clients' intervals, and its link and window over time."""

    def __init__(self) -> None:
        self.trips = 0
        self.arrived = 0
        self.failures = 0
        self.bytes_up = 0.0
        self.bytes_down = 0.0
        self.waited = 0.0
        self.staleness = 0
        self.intervals: list[tuple[int, str, float, float]] = []
        self.more = 0
        self.carried = Series()
        self.window = Series()

    def interval(self, client: int, activity: str, began: float, ended: float) -> None:
        """Note an activity of a client, such as "train", from `began` to `ended`, in seconds."""
        if len(self.intervals) < INTERVALS:
            self.intervals.append((client, activity, began, ended))
        else:
            self.more += 1

    def trip(self, trip: Trip, version: int) -> None:
        """Count a trip that is over. The server has made `version` steps."""
        self.trips += 1
        self.failures += trip.failures
        if trip.arrived:
            self.arrived += 1
            self.waited += trip.waited
            self.staleness += version - trip.start.version

    def measures(self, now: float, up: Channel | None) -> dict[str, Any]:
        """The sums as metrics: seconds, trips, bytes. `waiting` (s) and `staleness` (steps) are means over arrivals.

        Without a simulated link `up`, nobody knows how long uploads wait, and how much of the link they use.
        """
        arrivals = max(self.arrived, 1)
        measures = {
            "time": now,
            "trips": self.trips,
            "arrived": self.arrived,
            "failed_uploads": self.failures,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }
        if up is None:
            measures["staleness"] = self.staleness / arrivals
            return measures
        measures["waiting"] = self.waited / arrivals
        measures["staleness"] = self.staleness / arrivals
        measures["link_use"] = 0.0
        if now > 0:
            measures["link_use"] = up.carried / (now * up.link.rate)
        return measures

    def timeline(self, now: float, up: Channel | None) -> dict[str, Any]:
        """What each client did and when, and the use of the link and the window's size over time.

        `intervals` are [client, activity, from, to]: at most `INTERVALS` activities in order of their ends, each after
        the "wait" of its client before it, if there is one. `more` counts the other activities.
        """
        rate = None
        if up is not None:
            rate = up.link.rate
        return {
            "intervals": self._with_waits(),
            "more": self.more,
            "until": now,
            "rate": rate,
            "carried": self.carried.points,
            "window": self.window.points,
        }

    def _with_waits(self) -> list[tuple[int, str, float, float]]:
        """The intervals, and those between them, in which a client waits."""
        ends: dict[int, float] = {}
        intervals = []
        for client, activity, began, ended in self.intervals:
            if began > ends.get(client, began):
                intervals.append((client, "wait", ends[client], began))
            intervals.append((client, activity, began, ended))
            ends[client] = ended
        return intervals
