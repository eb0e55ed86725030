"""A paper's figure: which lines or landscapes it has, as a recipe's file says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import ConfigError
from ..config.errors import check_known
from ..config.words import show
from .pick import Axes, Pick, several, text

KINDS = {
    "curves": "accuracy by round, a line each",
    "values": "a number over the labels of an axis, a line each",
    "line": "loss and error between two models and beyond",
    "plane": "loss and error in the plane through three models",
    "surface": "loss and error around a model, in random directions of its filters' lengths",
    "decomposition": "bias, variance, covariance and distance of a round's clients",
}
COMMON = ("name", "title", "kind", "where")
OWN = {
    "curves": ("lines", "smooth", "by"),
    "values": ("lines", "x", "label"),
    "line": ("models", "points", "samples", "split"),
    "plane": ("models", "points", "samples", "split"),
    "surface": ("models", "points", "samples", "split"),
    "decomposition": ("rounds", "samples", "over"),
}
AGAINST = {"round": "round", "trips": "client trips"}
MODELS = {"line": 2, "plane": 3, "surface": 1}


@dataclass(frozen=True)
class Figure:
    """A figure, or a panel of one.

    - curves and values have `lines`, a pick each; `smooth` curves are filtered as in IMA (Savitzky-Golay, window 10,
      order 2), those `by` "trips" drawn against client trips, and values taken over the picks of `x`, an axis as a
      rule, called `label` in the picture;
    - line, plane and surface are drawn of every run of `where`, through or around its `models`, named as by `fedsash
      landscape`; `client:#1@N` is the first client of the round after the saved round N;
    - decomposition is drawn of every run of `where`, of the clients of its saved `rounds` (all, if none are given);
      runs that differ in the axis `over` alone are taken together, so that there is a variance.

    Landscapes have `points` a direction and are evaluated on `samples` of the `split` (0: all).
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
    models: tuple[str, ...] = ()
    rounds: tuple[int, ...] = ()
    points: int = 21
    samples: int = 0
    split: str = "test"

    @classmethod
    def of(cls, table: Mapping[str, Any], axes: Axes, name: str, place: str) -> Figure:
        """The figure that a recipe's file describes. Raises `ConfigError`."""
        kind = text(table.get("kind", ""), f"{place}.kind")
        check_known(kind, KINDS, f"{place}.kind: there is no kind")
        for key in table:
            check_known(key, (*COMMON, *OWN[kind]), f"{place}: unknown key")
        given = dict(table) | {"kind": kind, "name": text(table.get("name", name), f"{place}.name")}
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
        for key in ("models", "rounds"):
            given[key] = tuple(given.get(key, ()))
        figure = cls(**given)
        figure._check(place)
        return figure

    @property
    def dimensions(self) -> int:
        """Of a landscape."""
        return 1 if self.kind == "line" else 2

    def _check(self, place: str) -> None:
        count = MODELS.get(self.kind)
        if count is not None and len(self.models) != count:
            raise ConfigError(f"{place}.models = {show(self.models)}: a {self.kind} has {count} of them")
        if self.kind in ("curves", "values") and not self.lines:
            raise ConfigError(f"{place}.lines is missing: must be an axis, or a table with a pick for each line")
        if self.kind == "values" and not self.x:
            raise ConfigError(f"{place}.x is missing: must be an axis, or a table of picks")
