"""The colours, dashes and marks of all pictures."""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass, replace
from typing import Literal, get_args

Dash = Literal["solid", "dash", "dot", "dashdot", "longdash"]
Symbol = Literal["circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down"]

BLUE, RED, GREEN, PINK, ORANGE, SKY = COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of Okabe and Ito, which colour-blind people can tell apart, without black and yellow."""
CLASSES = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd"),
    *("#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"),
)
INK = "#333333"
GREY = "#949494"
RAMP = (
    *("#440154", "#482878", "#3e4989", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)
"""Of fields, from low to high: Viridis."""
DASHES: tuple[Dash, ...] = get_args(Dash)
SYMBOLS: tuple[Symbol, ...] = get_args(Symbol)


@dataclass(frozen=True)
class Style:
    """The style of a line. A `quiet` line is thin: the other lines are compared with it."""

    colour: str
    dash: Dash = "solid"
    symbol: Symbol = "circle"
    quiet: bool = False


QUIET = Style(GREY, quiet=True)


def look(place: int) -> Style:
    """The style of the line with this index. Colour and mark together distinguish 42 lines."""
    lap = place // len(COLOURS)
    return Style(COLOURS[place % len(COLOURS)], DASHES[lap % len(DASHES)], SYMBOLS[place % len(SYMBOLS)])


def of_bars(count: int) -> list[str]:
    """Colours for bars side by side and lines, which differ by nothing else."""
    return list(COLOURS[:count]) if count <= len(COLOURS) else many(count)


def paired(names: Sequence[str]) -> dict[str, Style]:
    """A style for each name: for "A + ..." the colour of the name "A" with other dashes, and for all others a colour of
    their own, solid."""
    bases = {name: name.partition(" + ")[0] for name in names}
    own = [name for name in names if bases[name] == name or bases[name] not in names]
    styles = {
        name: Style(colour, symbol=SYMBOLS[place % len(SYMBOLS)])
        for place, (name, colour) in enumerate(zip(own, of_bars(len(own)), strict=True))
    }
    for base in own:
        others = [name for name in names if bases[name] == base and name != base]
        styles |= {name: replace(styles[base], dash=DASHES[1:][i % len(DASHES[1:])]) for i, name in enumerate(others)}
    return styles


def many(count: int) -> list[str]:
    """Colours for `count` classes: up to ten colours that are easy to name, otherwise a rainbow."""
    if count <= len(CLASSES):
        return list(CLASSES[:count])
    shades = ((0.78 * i / (count - 1), (0.42, 0.58)[i % 2]) for i in range(count))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue, light, 0.75)) for hue, light in shades]
