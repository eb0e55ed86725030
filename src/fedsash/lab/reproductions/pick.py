"""Which numbers of which runs: what a row, a column, a line or a panel stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import ConfigError
from ..config.errors import check_known
from ..config.words import show

Labels = Mapping[str, str]
"""A run's label on each axis."""
AxisLabels = Mapping[str, list[str]]

STATISTICS = {
    "last_mean": "mean accuracy of the last evaluations, %",
    "accuracy": "accuracy at the end, %",
    "best": "highest accuracy, %",
    "rounds_to_target": "first evaluated round at the target",
    "speed_up": "how many times fewer rounds to the target",
    "trips_to_target": "client trips until the target, on a network",
    "trips_speed_up": "how many times fewer client trips to the target",
}
SPEED_UPS = {"speed_up": "rounds_to_target", "trips_speed_up": "trips_to_target"}
"""What each is the quotient of."""
OWN = ("model", "statistic")


@dataclass(frozen=True)
class Pick:
    """Runs by their labels, in them a `model`, and a `statistic` of it; what is "" is left to another pick.

    `where` has the labels that count on each axis that matters. The model is one of a run's own names, or `"sent"`: the
    global model until a broadcast begins, and the average in its place from then on, as IMA reports it.
    """

    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    model: str = ""
    statistic: str = ""

    @classmethod
    def of(cls, table: Any, axes: AxisLabels, place: str) -> Pick:
        """The pick that a table describes: labels by axis, beside `model` and `statistic`. Raises `ConfigError`."""
        table = mapping(table, place)
        where = {axis: labels(given, axis, axes, place) for axis, given in table.items() if axis not in OWN}
        model, statistic = (text(table.get(key, ""), f"{place}.{key}") for key in OWN)
        if statistic and statistic not in STATISTICS:
            raise ConfigError(f"{place}.statistic = {show(statistic)}: must be one of {', '.join(STATISTICS)}")
        return cls(where, model, statistic)

    def __or__(self, other: Pick) -> Pick:
        """Both together; the other's say counts where both have one."""
        return Pick({**self.where, **other.where}, other.model or self.model, other.statistic or self.statistic)

    def takes(self, run: Labels) -> bool:
        """Whether a run with these labels is one of them."""
        return all(run[axis] in wanted for axis, wanted in self.where.items())


def several(given: Any, axes: AxisLabels, place: str) -> dict[str, Pick]:
    """Picks by label: an axis by its name stands for all of its labels, a table has a pick for each label."""
    if isinstance(given, str):
        check_known(given, axes, f"{place}: there is no axis")
        return {label: Pick({given: (label,)}) for label in axes[given]}
    return {str(label): Pick.of(pick, axes, f"{place}.{label}") for label, pick in mapping(given, place).items()}


def labels(given: Any, axis: str, axes: AxisLabels, place: str) -> tuple[str, ...]:
    """One or more labels of an axis."""
    check_known(axis, axes, f"{place}: there is no axis")
    found = tuple(str(label) for label in (given if isinstance(given, list) else [given]))
    for label in found:
        check_known(label, axes[axis], f"{place}: axis {axis} has no label")
    return found


def mapping(value: Any, place: str) -> Mapping[str, Any]:
    """The value, if it is a table."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} = {show(value)}: must be a table")
    return value


def text(value: Any, place: str) -> str:
    """The value, if it is a string."""
    if not isinstance(value, str):
        raise ConfigError(f"{place} = {show(value)}: must be a string")
    return value
