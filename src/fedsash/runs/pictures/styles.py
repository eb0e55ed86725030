"""The colours, dashes and marks of all pictures."""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass, replace
from typing import Literal, get_args

Dash = Literal["solid", "dash", "dot", "dashdot", "longdash"]
Symbol = Literal["circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down"]

BLUE = "#0072B2"
RED = "#D55E00"
GREEN = "#009E73"
PINK = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY)
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
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    return many(count)


def paired(names: Sequence[str]) -> dict[str, Style]:
    """A style for each name: for "A + ..." the colour of the name "A" with other dashes, and for all others a colour of
    their own, solid."""
    bases = []
    variants: dict[str, list[str]] = {}
    for name in names:
        base = name.partition(" + ")[0]
        if base != name and base in names:
            variants.setdefault(base, []).append(name)
        else:
            bases.append(name)
    styles = {}
    for i, colour in enumerate(of_bars(len(bases))):
        styles[bases[i]] = Style(colour, symbol=SYMBOLS[i % len(SYMBOLS)])
    dashes = DASHES[1:]
    for base in bases:
        for i, name in enumerate(variants.get(base, [])):
            styles[name] = replace(styles[base], dash=dashes[i % len(dashes)])
    return styles


def many(count: int) -> list[str]:
    """Colours for `count` classes: up to ten colours that are easy to name, otherwise a rainbow."""
    if count <= len(CLASSES):
        return list(CLASSES[:count])
    colours = []
    for i in range(count):
        hue = 0.78 * i / (count - 1)
        lightness = (0.42, 0.58)[i % 2]  # neighbours differ in more than their hue
        red, green, blue = hls_to_rgb(hue, lightness, 0.75)
        colours.append(f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}")
    return colours
