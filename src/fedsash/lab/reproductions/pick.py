"""Picks: which numbers of which runs belong to a row, a column, a line or a panel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ..config import ConfigError
from ..config.errors import check_known
from ..config.words import shown

Labels = Mapping[str, str]
"""A run's label on each axis."""
AxisLabels = Mapping[str, list[str]]

STATISTICS = {
    "last_mean": "mean of the last evaluations",
    "value": "at the last evaluation",
    "best": "the best round",
    "rounds_to_target": "first evaluated round at the target",
    "speed_up": "how many times fewer rounds to the target",
    "trips_to_target": "client trips until the target, on a network",
    "trips_speed_up": "how many times fewer client trips to the target",
}
SPEED_UPS = {"speed_up": "rounds_to_target", "trips_speed_up": "trips_to_target"}
"""The statistic whose quotient each speed-up is."""
OWN = {
    "model": "a model of the run by its name, or `sent`: what clients receive, the model until a broadcast begins and "
    "the average from then on",
    "statistic": f"the number of this model: {', '.join(STATISTICS)}",
}
"""The keys of a pick beside the names of axes, and what they mean."""


@dataclass(frozen=True)
class Pick:
    """Selects runs by their labels, one `model` in them, and one `statistic` of it.

    An empty field ("") is filled from the pick that this one is combined with. `where` lists the labels that are
    selected on each axis; other axes are free. The model is a name of a run's model, or `"sent"`: the model that
    clients receive, which is the global model until a broadcast begins and the average from then on (as in IMA).
    """

    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    model: str = ""
    statistic: str = ""

    @classmethod
    def of(cls, table: Any, axes: AxisLabels, place: str) -> Pick:
        """The pick that a table describes: labels by axis, `model` and `statistic`. Raises `ConfigError`."""
        table = mapping(table, place)
        where = {axis: labels(given, axis, axes, place) for axis, given in table.items() if axis not in OWN}
        model, statistic = (text(table.get(key, ""), f"{place}.{key}") for key in OWN)
        if statistic and statistic not in STATISTICS:
            raise ConfigError(f"{place}.statistic = {shown(statistic)}: must be one of {', '.join(STATISTICS)}")
        return cls(where, model, statistic)

    def __or__(self, other: Pick) -> Pick:
        """The two picks combined. If both set a field, the value of `other` is used."""
        return Pick({**self.where, **other.where}, other.model or self.model, other.statistic or self.statistic)

    @property
    def on_network(self) -> bool:
        """Whether its statistic counts the client trips of a network."""
        return self.statistic.startswith("trips")

    def takes(self, run: Labels) -> bool:
        """Whether the pick selects a run with these labels."""
        return all(run[axis] in wanted for axis, wanted in self.where.items())


def several(given: Any, axes: AxisLabels, place: str) -> dict[str, Pick]:
    """Picks by label. The name of an axis gives a pick for each of its labels, a table has a pick for each label.

    A list of axes gives a pick for each combination, called "A + B"; the label "off" is not in the name.
    """
    if isinstance(given, str | list):
        named = [given] if isinstance(given, str) else given
        for axis in named:
            check_known(axis, axes, f"{place}: there is no axis")
        chosen = product(*(axes[axis] for axis in named))
        return {
            " + ".join(label for label in of if label != "off" or len(named) == 1): Pick(
                {axis: (label,) for axis, label in zip(named, of, strict=True)}
            )
            for of in chosen
        }
    return {str(label): Pick.of(pick, axes, f"{place}.{label}") for label, pick in mapping(given, place).items()}


def labels(given: Any, axis: str, axes: AxisLabels, place: str) -> tuple[str, ...]:
    """One or more labels of an axis, checked. Raises `ConfigError`."""
    check_known(axis, axes, f"{place}: there is no axis")
    found = tuple(str(label) for label in (given if isinstance(given, list) else [given]))
    for label in found:
        check_known(label, axes[axis], f"{place}: axis {axis} has no label")
    return found


def _must_be(kind: type[Any], right: str) -> Callable[[Any, str], Any]:
    """A function of a value and its place that gives the value back. It raises `ConfigError` for another kind."""

    def checked(value: Any, place: str) -> Any:
        if not isinstance(value, kind):
            raise ConfigError(f"{place} = {shown(value)}: must be {right}")
        return value

    return checked


mapping: Callable[[Any, str], Mapping[str, Any]] = _must_be(Mapping, "a table")
listed: Callable[[Any, str], list[Any]] = _must_be(list, "a list")
text: Callable[[Any, str], str] = _must_be(str, "a string")


def keyed(value: Any, keys: Iterable[str], place: str) -> Mapping[str, Any]:
    """The value, which must be a table with these keys, or some of them. Raises `ConfigError`."""
    table = mapping(value, place)
    for key in table:
        check_known(key, keys, f"{place}: unknown key" if place else "unknown key")
    return table
