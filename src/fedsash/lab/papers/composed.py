"""One picture of the findings of a study in several runs, laid out as a paper's figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runs.pictures import Axis, Bars, Line, Panel, Picture, Points, look
from ...runs.pictures.picture import Layer
from ...settings.errors import RunError
from ..studies import pictures

COLUMN = 4.6
ROW = 4.0
"""Inches of a panel among others."""


@dataclass(frozen=True)
class Finding:
    """What a study says of one run, for one panel of a figure: its `table`, and the labels of panel and run.

    A label is "" where there is only one.
    """

    panel: str
    run: str
    table: dict[str, Any]

    @property
    def label(self) -> str:
        return _joined(self.run, self.panel)


@dataclass(frozen=True)
class _Part:
    """The panels of one finding, and the labels of its row and its column in the picture."""

    label: str
    row: str
    column: str
    panels: Sequence[Panel]


def composed(title: str, findings: Sequence[Finding], shows: Sequence[str], overlay: bool) -> Picture:
    """The panels `shows` of all findings in one picture.

    Its rows are the runs, and in each of them what is shown; its columns are the panels of the figure. If it has one
    panel, the runs are the columns. With `overlay`, the lines of all findings are in one panel for each of `shows`.
    Panels that compare runs have common colour scales; panels at several stages of a run have their own.
    """
    parts = _parts(findings, shows)
    if overlay:
        return Picture(title, [_overlaid(i, parts) for i in range(len(shows))])
    rows = dict.fromkeys(part.row for part in parts)
    columns = dict.fromkeys(part.column for part in parts)
    by_place = {(part.row, part.column): part for part in parts}
    panels = []
    for row in rows:
        for i in range(len(shows)):
            for column in columns:
                panels.append(_placed(by_place.get((row, column)), i, len(shows) > 1))
    return Picture(title, panels, len(columns))


def _parts(findings: Sequence[Finding], shows: Sequence[str]) -> list[_Part]:
    """The panels `shows` of each finding."""
    tables = [finding.table for finding in findings]
    if any(finding.panel for finding in findings):
        drawn = [pictures([table])[0] for table in tables]
    else:
        drawn = pictures(tables)  # together, so that they have common colour scales
    parts = []
    for finding, picture in zip(findings, drawn, strict=True):
        panels = [_named(picture, name) for name in shows]
        if finding.panel:
            parts.append(_Part(finding.label, finding.run, finding.panel, panels))
        else:
            parts.append(_Part(finding.label, "", finding.run, panels))
    return parts


def _named(picture: Picture, name: str) -> Panel:
    """The panel of that name, with or without its unit."""
    by_name = {panel.name.partition(" (")[0]: panel for panel in picture.panels}
    if name not in by_name:
        raise RunError(f"shows has {name!r}, which is none of its panels: {', '.join(by_name)}")
    return by_name[name]


def _placed(part: _Part | None, i: int, several: bool) -> Panel:
    """Panel `i` of a part; an empty one for a place of which there is no finding."""
    if part is None:
        return Panel("", Axis(), Axis(), [], COLUMN, ROW)
    panel = part.panels[i]
    name = part.label
    if not name:
        name = panel.name
    elif several and panel.name:
        name = f"{name}: {panel.name}"
    return replace(panel, name=name, width=COLUMN, height=ROW)


def _overlaid(i: int, parts: Sequence[_Part]) -> Panel:
    """The lines or bars of all parts in one panel, called by their parts."""
    panels = [part.panels[i] for part in parts]
    lines: list[Layer] = []
    bars: list[tuple[str, Bars]] = []
    for part, panel in zip(parts, panels, strict=True):
        for layer in panel.layers:
            if isinstance(layer, Points) and len(parts) > 1:
                raise RunError(f"the points of several runs can't be told apart in one {panels[0].name!r}: no overlay")
            if isinstance(layer, Bars):
                bars.append((part.label, layer))
            elif isinstance(layer, Line):
                lines.append(replace(layer, name=_joined(part.label, layer.name), style=look(len(lines))))
    layers: list[Layer] = [layer for layer in panels[0].layers if not isinstance(layer, Bars | Line)]
    layers += lines
    if bars:
        layers.append(_side_by_side(bars))
    x = _axis([panel.x for panel in panels])
    y = _axis([panel.y for panel in panels])
    return replace(panels[0], x=x, y=y, layers=layers, width=8, height=4.5, ends=not bars)


def _side_by_side(groups: Sequence[tuple[str, Bars]]) -> Bars:
    """The bars of several parts in one layer. Where each part has one bar, the part's label says enough."""
    single = all(len(bars.names) == 1 for _, bars in groups)
    names: list[str] = []
    heights: list[Sequence[float | None]] = []
    for label, bars in groups:
        heights += bars.heights
        if single and label:
            names.append(label)
        else:
            names += [_joined(label, name) for name in bars.names]
    colours = [look(place).colour for place in range(len(names))]
    return replace(groups[0][1], names=names, heights=heights, colours=colours)


def _axis(axes: Sequence[Axis]) -> Axis:
    """The first of some axes, as long as they are together. An open end of one stays open."""
    lows = [axis.low for axis in axes if axis.low is not None]
    highs = [axis.high for axis in axes if axis.high is not None]
    low = None
    high = None
    if len(lows) == len(axes):
        low = min(lows)
    if len(highs) == len(axes):
        high = max(highs)
    return replace(axes[0], low=low, high=high)


def _joined(*labels: str) -> str:
    """The labels that are not empty, with commas."""
    return ", ".join(label for label in labels if label)
