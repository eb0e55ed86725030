"""One picture of what a study has found in several runs, laid out as a paper's figure."""

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
    """What a study has found for a panel of a figure in a run, with the labels of both; "" where there is only one."""

    panel: str
    run: str
    found: dict[str, Any]

    @property
    def label(self) -> str:
        return _joined(self.run, self.panel)


@dataclass(frozen=True)
class _Part:
    label: str
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
    columns = list(dict.fromkeys(part.column for part in parts))
    rows = [(run, i) for run in dict.fromkeys(_row(finding) for finding in findings) for i in range(len(shows))]
    there = {(_row(finding), part.column): part for finding, part in zip(findings, parts, strict=True)}
    panels = [_placed(there.get((run, column)), i, len(shows) > 1) for run, i in rows for column in columns]
    return Picture(title, panels, len(columns))


def _row(finding: Finding) -> str:
    return finding.run if finding.panel else ""


def _parts(findings: Sequence[Finding], shows: Sequence[str]) -> list[_Part]:
    found = [finding.found for finding in findings]
    alone = any(finding.panel for finding in findings)
    drawn = [pictures([each])[0] for each in found] if alone else pictures(found)
    return [
        _Part(finding.label, finding.panel or finding.run, [_named(picture, name) for name in shows])
        for finding, picture in zip(findings, drawn, strict=True)
    ]


def _named(picture: Picture, name: str) -> Panel:
    """The panel of that name, with or without its unit."""
    there = {panel.name.partition(" (")[0]: panel for panel in picture.panels}
    if name not in there:
        raise RunError(f"shows has {name!r}, which is none of its panels: {', '.join(there)}")
    return there[name]


def _placed(part: _Part | None, i: int, several: bool) -> Panel:
    """A panel in its place, which is empty if nothing was found for it."""
    if part is None:
        return Panel("", Axis(), Axis(), [], COLUMN, ROW)
    panel = part.panels[i]
    name = ": ".join(filter(None, (part.label, panel.name if several or not part.label else "")))
    return replace(panel, name=name, width=COLUMN, height=ROW)


def _overlaid(i: int, parts: Sequence[_Part]) -> Panel:
    """The lines or bars of all parts in one panel, called by their parts."""
    layers = [(part.label, layer) for part in parts for layer in part.panels[i].layers]
    if len(parts) > 1 and any(isinstance(layer, Points) for _, layer in layers):
        raise RunError(f"the points of several runs can't be told apart in one {parts[0].panels[i].name!r}: no overlay")
    bars = [(label, layer) for label, layer in layers if isinstance(layer, Bars)]
    lines = [(label, layer) for label, layer in layers if isinstance(layer, Line)]
    others = [layer for layer in parts[0].panels[i].layers if not isinstance(layer, Bars | Line)]
    drawn: list[Layer] = [
        replace(line, name=_joined(label, line.name), style=look(place)) for place, (label, line) in enumerate(lines)
    ]
    if bars:
        alone = all(len(each.names) == 1 for _, each in bars)
        names = [label if alone and label else _joined(label, name) for label, each in bars for name in each.names]
        colours = [look(place).colour for place in range(len(names))]
        heights = [row for _, each in bars for row in each.heights]
        drawn.append(replace(bars[0][1], names=names, heights=heights, colours=colours))
    panels = [part.panels[i] for part in parts]
    x = _axis([panel.x for panel in panels])
    y = _axis([panel.y for panel in panels])
    return replace(panels[0], x=x, y=y, layers=[*others, *drawn], width=8, height=4.5, ends=not bars)


def _axis(axes: Sequence[Axis]) -> Axis:
    """The first of some axes, as long as they are together. An open end of one stays open."""
    lows, highs = (
        [end for end in ends if end is not None] for ends in zip(*((a.low, a.high) for a in axes), strict=True)
    )
    low = min(lows) if len(lows) == len(axes) else None
    high = max(highs) if len(highs) == len(axes) else None
    return replace(axes[0], low=low, high=high)


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))
