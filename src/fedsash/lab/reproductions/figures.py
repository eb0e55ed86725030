"""A paper's figure: the lines or landscapes that a reproduction's file lists for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..config import ConfigError
from ..config.errors import check_known
from ..config.tables import build
from ..config.words import shown
from ..studies import kinds
from ..studies.study import Study
from .pick import AxisLabels, Pick, several, text

OWN = {
    "curves": ("lines", "smooth", "by"),
    "values": ("lines", "x", "label"),
}
"""The kinds of figures that are made from recorded accuracies, and their keys. All other kinds are studies."""
COMMON = ("name", "title", "kind", "where")
AGAINST = {"round": "round", "trips": "client trips"}


@dataclass(frozen=True)
class Figure:
    """A figure, or a panel of a figure.

    - Curves and values have `lines`, one pick for each. `smooth` curves are filtered as in IMA (Savitzky-Golay, window
      10, order 2). Curves `by` "trips" are drawn against client trips. Values have one point for each pick of `x`,
      usually an axis, with the name `label` in the picture.
    - Any other kind shows the findings of its `study` (see `lab/studies/`) in every run of `where`. The keys are the
      study's settings. In `models`, `client:#1@N` is the first client of the round after the saved round N. A study of
      several runs together takes runs that differ only in the axis `over`.
    """

    name: str
    title: str
    kind: str
    where: Pick
    lines: Mapping[str, Pick] = field(default_factory=dict)
    smooth: bool = False
    by: str = "round"
    x: Mapping[str, Pick] = field(default_factory=dict)
    label: str = ""
    over: str = ""
    study: Study | None = None

    @classmethod
    def of(cls, table: Mapping[str, Any], axes: AxisLabels, name: str, place: str) -> Figure:
        """The figure that a table in a reproduction's file describes. Raises `ConfigError`."""
        kind = text(table.get("kind", ""), f"{place}.kind")
        known = kinds()
        keys = OWN | {name: ("over",) if study.takes == "together" else () for name, study in known.items()}
        check_known(kind, keys, f"{place}.kind: there is no kind")
        own = (*COMMON, *keys[kind])
        given = {key: value for key, value in table.items() if key in own}
        others = {key: value for key, value in table.items() if key not in own}
        if kind in known:
            given["study"] = _study(kind, known[kind], others, place)
        for key in others if kind in OWN else ():
            check_known(key, own, f"{place}: unknown key")
        given |= {"kind": kind, "name": text(table.get("name", name), f"{place}.name")}
        where = Pick.of(given.get("where", {}), axes, f"{place}.where")
        given["where"] = Pick(model="model", statistic="last_mean") | where
        given["title"] = text(table.get("title", ""), f"{place}.title")
        for key in ("lines", "x"):
            if key in given:
                given[key] = several(given[key], axes, f"{place}.{key}")
        if "by" in given:
            check_known(text(given["by"], f"{place}.by"), AGAINST, f"{place}.by: there is no")
        if "over" in given:
            check_known(text(given["over"], f"{place}.over"), axes, f"{place}.over: there is no axis")
        given["label"] = text(given.get("label", ""), f"{place}.label")
        figure = cls(**given)
        figure._check(place)
        return figure

    def _check(self, place: str) -> None:
        if self.kind in ("curves", "values") and not self.lines:
            raise ConfigError(f"{place}.lines is missing: must be an axis, or a table with a pick for each line")
        if self.kind == "values" and not self.x:
            raise ConfigError(f"{place}.x is missing: must be an axis, or a table of picks")


def _study(kind: str, make: type[Study], settings: Mapping[str, Any], place: str) -> Study:
    """The study with these settings. As on the command line, a word stands for None: `samples = "all"`."""
    words = {option.name: option.metadata["none"] for option in fields(make)}
    given = {key: value for key, value in settings.items() if value != words.get(key)}
    nothing = {key: None for key in settings if key not in given}
    study: Study = replace(build(make, given, place), **nothing)
    if study.kind != kind:
        raise ConfigError(f"{place}.kind = {shown(kind)}: with these settings it is a {study.kind}")
    return study
