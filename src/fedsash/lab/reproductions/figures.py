"""A paper's figure: the lines or landscapes that a reproduction's file lists for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..config import ConfigError
from ..config.errors import check_known
from ..config.tables import build
from ..config.words import shown
from ..studies import kinds
from ..studies.study import Study
from .pick import SPEED_UPS, AxisLabels, Pick, keyed, listed, mapping, several, text
from .statements import Statement

KEYS = {
    "name": "the name of its files; by default that of the reproduction",
    "title": "what stands above it",
    "kind": "curves, values, or what a study finds: line, plane, decomposition, ...",
    "where": "a pick that all its lines or runs share",
    "statements": "what the paper says about it",
    "lines": "an axis, a list of axes, or a table with a pick for each line",
    "smooth": "whether curves are filtered as in IMA",
    "by": "what curves are drawn against: round or trips, client trips on a network",
    "x": "an axis or a table of picks: the points of values",
    "label": "the name of x in the picture",
    "panels": "tables with other settings of the study, or another `where`, one for each panel",
    "shows": "the panels of a study's pictures that are put together in one picture",
    "overlay": "whether the lines of all runs are in one panel",
    "over": "the axis in which the runs differ that a study takes together",
}
"""The keys of a figure, and what they mean. A figure of a study also has the study's settings as keys."""
OWN = {"curves": ("lines", "smooth", "by"), "values": ("lines", "x", "label")}
"""The kinds of figures that are made from recorded accuracies, and their keys. All other kinds are studies."""
STUDIED = ("panels", "shows", "overlay")
"""The keys of figures that show findings of a study."""
COMMON = ("name", "title", "kind", "where", "statements")
AGAINST = {"round": "round", "trips": "client trips"}


@dataclass(frozen=True)
class Look:
    """A panel's runs, and the study that looks at each of them."""

    where: Pick
    study: Study

    def at(self, last: int) -> Study:
        """The study in a run of `last` rounds. In its models `client:#1@50%` becomes `client:#1@200` of 400 rounds."""
        models = tuple(resolved(model, last) for model in getattr(self.study, "models", ()))
        return replace(self.study, **{"models": models}) if models else self.study

    def rounds(self, last: int) -> set[int]:
        """The rounds whose states it needs in a run of `last` rounds."""
        study = self.at(last)
        found = (re.search(r"(?:@|round:)(\d+)$", model) for model in getattr(study, "models", ()))
        named = {*(getattr(study, "rounds", ()) or ()), getattr(study, "round", None)} - {None}
        return {int(there[1]) for there in found if there} | named


@dataclass(frozen=True)
class Figure:
    """A figure, or a part of a figure.

    - Curves and values have `lines`, one pick for each. A line called "A + ..." is drawn as the line "A" is, dashed.
      `smooth` curves are filtered as in IMA (Savitzky-Golay, window 10, order 2). Curves `by` "trips" are drawn against
      client trips. Values have one point for each pick of `x`, usually an axis, with the name `label` in the picture.
    - Any other kind shows the findings of a study (see `lab/studies/`) in every run of `where`. The keys are the
      settings of the study. A table in `panels` has other settings, or another `where`, for one panel. In `models`,
      `client:#1@N` is the first client of the round after the saved round N, and N% (also N%+1, N%-1) a share of the
      run's rounds. Each finding is one picture. With `shows`, the names of some panels of these pictures, there is one
      picture of them all: a row for each name and run, a column for each of `panels`; without `panels` a column for
      each run. With `overlay` the lines of all runs are in one panel. A study of several runs together takes runs that
      differ only in the axis `over`.

    `statements` are what the paper says about it.
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
    looks: Mapping[str, Look] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    overlay: bool = False
    statements: tuple[Statement, ...] = ()

    @classmethod
    def of(cls, table: Mapping[str, Any], axes: AxisLabels, name: str, place: str) -> Figure:
        """The figure that a table in a reproduction's file describes. Raises `ConfigError`."""
        kind = text(table.get("kind", ""), f"{place}.kind")
        known = kinds()
        keys = OWN | {name: (*STUDIED, *("over",) * (of.takes == "together")) for name, of in known.items()}
        check_known(kind, keys, f"{place}.kind: there is no kind")
        own = (*COMMON, *keys[kind])
        given = {key: value for key, value in table.items() if key in own}
        others = {key: value for key, value in table.items() if key not in own}
        if kind in OWN:
            keyed(table, own, place)
        where = Pick(model="model", statistic="last_mean") | Pick.of(given.get("where", {}), axes, f"{place}.where")
        if kind in known:
            panels = mapping(given.pop("panels", {"": {}}), f"{place}.panels")
            given["looks"] = {
                label: _look(
                    where, known[kind], kind, {**others, **mapping(panel, f"{place}.panels.{label}")}, axes, place
                )
                for label, panel in panels.items()
            }
        given |= {"kind": kind, "where": where, "name": text(table.get("name", name), f"{place}.name")}
        given |= {key: text(given.get(key, ""), f"{place}.{key}") for key in ("title", "label")}
        given |= {key: several(given[key], axes, f"{place}.{key}") for key in ("lines", "x") if key in given}
        given["shows"] = tuple(listed(given.get("shows", []), f"{place}.shows"))
        said = listed(given.get("statements", []), f"{place}.statements")
        given["statements"] = tuple(Statement.of(one, f"{place}.statements[{i}]") for i, one in enumerate(said))
        figure = cls(**given)
        figure._check(axes, place)
        return figure

    @property
    def picks(self) -> list[Pick]:
        """What its lines select, point by point."""
        return [self.where | line | x for line in self.lines.values() for x in (self.x or {"": Pick()}).values()]

    @property
    def picks_on_networks(self) -> list[Pick]:
        """Those of its picks whose runs need a network."""
        return [pick for pick in self.picks if self.by == "trips" or pick.on_network]

    def _check(self, axes: AxisLabels, place: str) -> None:
        check_known(text(self.by, f"{place}.by"), AGAINST, f"{place}.by: there is no")
        if text(self.over, f"{place}.over"):
            check_known(self.over, axes, f"{place}.over: there is no axis")
        if self.kind in OWN and not self.lines:
            raise ConfigError(f"{place}.lines is missing: must be an axis, or a table with a pick for each line")
        if self.kind == "values" and not self.x:
            raise ConfigError(f"{place}.x is missing: must be an axis, or a table of picks")
        for pick in self.picks:
            if pick.statistic in SPEED_UPS:
                right = f"only tables have speed-ups, a figure has {SPEED_UPS[pick.statistic]}"
                raise ConfigError(f"{place}: statistic = {shown(pick.statistic)}: {right}")
        if self.kind not in OWN and self.statements and not self.shows:
            raise ConfigError(f"{place}.statements: need shows, the panels whose lines they are about")


def resolved(model: str, last: int) -> str:
    """A model's name in a run of `last` rounds: shares of the rounds become rounds, from 1 to `last`."""

    def round_of(share: re.Match[str]) -> str:
        whole = round(int(share[1]) / 100 * last) + int(share[2] or 0)
        return str(min(max(whole, 1), last))

    return re.sub(r"(?<=[@:])(\d+)%([+-]\d+)?$", round_of, model)


def _look(where: Pick, make: type[Study], kind: str, settings: dict[str, Any], axes: AxisLabels, place: str) -> Look:
    """A panel's runs and its study."""
    own = Pick.of(settings.pop("where", {}), axes, f"{place}.where")
    return Look(where | own, _study(kind, make, settings, place))


def _study(kind: str, make: type[Study], settings: Mapping[str, Any], place: str) -> Study:
    """The study with these settings. As on the command line, a word stands for None: `samples = "all"`."""
    words = {option.name: option.metadata["none"] for option in fields(make)}
    given = {key: value for key, value in settings.items() if value != words.get(key)}
    nothing = {key: None for key in settings if key not in given}
    study: Study = replace(build(make, given, place), **nothing)
    if study.kind != kind:
        raise ConfigError(f"{place}.kind = {shown(kind)}: with these settings it is a {study.kind}")
    return study
