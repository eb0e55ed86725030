"""Picks: which numbers of which runs belong to a row, a column, a line or a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from ...settings.errors import SettingError, check
from ..config.words import suggestion
from ..sweeps.axes import label_of

Labels: TypeAlias = Mapping[str, str]
"""A run's label on each axis."""
AxisLabels: TypeAlias = Mapping[str, Sequence[str]]
"""The labels of each axis."""

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


@dataclass(frozen=True)
class Pick:
    """Selects runs by their labels, one `model` in them, and one `statistic` of it. `pick` makes one.

    An empty field ("") is filled from the pick that this one is combined with. `where` lists the labels that are
    selected on each axis; other axes are free. The model is a name of a run's model, or `"sent"`: the model that
    clients receive, which is the global model until a broadcast begins and the average from then on (as in IMA).
    """

    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    model: str = ""
    statistic: str = ""

    def __post_init__(self) -> None:
        requirement = f"must be one of {', '.join(STATISTICS)}"
        check(not self.statistic or self.statistic in STATISTICS, "statistic", self.statistic, requirement)

    def __or__(self, other: Pick) -> Pick:
        """The two picks combined. If both set a field, the value of `other` is used."""
        return Pick(
            where={**self.where, **other.where},
            model=other.model or self.model,
            statistic=other.statistic or self.statistic,
        )

    @property
    def on_network(self) -> bool:
        """Whether its statistic counts the client trips of a network."""
        return self.statistic.startswith("trips")

    def takes(self, run: Labels) -> bool:
        """Whether the pick selects a run with these labels."""
        return all(run[axis] in wanted for axis, wanted in self.where.items())

    def check(self, axes: AxisLabels, place: str) -> None:
        """Raise `SettingError` for an axis or a label that is not among these."""
        for axis, labels in self.where.items():
            check_axis(axis, axes, place)
            for label in labels:
                if label not in axes[axis]:
                    raise SettingError("", f"{place}.{axis}", label, hint(label, axes[axis]))


ANY = Pick()
"""A pick of all runs."""
Picks: TypeAlias = str | Sequence[str] | Mapping[str, Pick]
"""Picks by label: those of an axis, of each combination of some axes' labels, or each by itself."""


def pick(model: str = "", statistic: str = "", **labels: str | float | Sequence[str | float]) -> Pick:
    """A pick by its axes: `pick("wima", method="FedAvg", seed=0, data=["CIFAR-10 a=0", "CIFAR-100 a=0"])`.

    On an axis of values the label of a value is how an experiment file shows it: 0 and "0" are the same.
    """
    where: dict[str, tuple[str, ...]] = {}
    for axis, values in labels.items():
        if isinstance(values, str | float | int):
            where[axis] = (label_of(values),)
        else:
            where[axis] = tuple(label_of(value) for value in values)
    return Pick(where, model, statistic)


def by_label(picks: Picks, axes: AxisLabels, place: str) -> dict[str, Pick]:
    """Picks by label. The name of an axis gives a pick for each of its labels, a mapping has its own labels.

    A list of axes gives a pick for each combination, called "A + B"; the label "off" is not in the name. Raises
    `SettingError` for an unknown axis or label.
    """
    if isinstance(picks, Mapping):
        for label, each in picks.items():
            each.check(axes, f"{place}.{label}")
        return dict(picks)
    names = [picks] if isinstance(picks, str) else list(picks)
    for axis in names:
        check_axis(axis, axes, place)
    combined: dict[str, Pick] = {}
    for labels in product(*(axes[axis] for axis in names)):
        shown = [label for label in labels if label != "off" or len(names) == 1]
        combined[" + ".join(shown)] = pick(**dict(zip(names, labels, strict=True)))
    return combined


def check_axis(axis: str, axes: AxisLabels, place: str) -> None:
    """Raise `SettingError` if there is no such axis."""
    if axis not in axes:
        raise SettingError("", place, axis, f"there is no such axis; {hint(axis, list(axes))}")


def hint(word: str, known: Sequence[str]) -> str:
    """What would be right in place of a word that is not known."""
    close = suggestion(word, known)
    if close:
        return f"did you mean {close}?"
    return f"must be one of {', '.join(known)}"
