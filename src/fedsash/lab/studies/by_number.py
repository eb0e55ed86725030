"""What studies share that take 1, 2, ... of a round's client models: random orders, and lines by their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...basics.arrays import Ints
from ...basics.randomness import Purpose, generator
from ...runs.pictures import Line, look
from ...runs.pictures.styles import Style
from .study import Found, option, times

ORDERS = option("random orders of the clients")
SEED = option("for the orders")
LINES = 4
"""The most rounds that have a line of their own in a picture."""


def over_orders(numbers: Callable[[Ints], Sequence[float]], size: int, orders: int, seed: int) -> list[list[float]]:
    """For each of the `numbers` of some clients, by their places, a list by K = 1..`size`.

    At K is its mean over the first K clients in so many random `orders`.
    """
    drawn = [generator(seed, Purpose.DIRECTION, i).permutation(size) for i in range(orders)]
    means = [np.mean([numbers(order[:k]) for order in drawn], axis=0) for k in range(1, size + 1)]
    lists: list[list[float]] = np.transpose(means).tolist()
    return lists


def by_number(found: Found, solid: str, dashed: str, called: str, scale: float = 1.0) -> list[Line]:
    """The numbers `solid` and, dashed, `dashed` by the number of models, for some rounds from the first to the last.

    Both are keys of the findings, lists by round and number. `called` is what dashed lines are called.
    """
    places = np.unique(np.linspace(0, len(found["rounds"]) - 1, LINES).round().astype(int)).tolist()
    lines = []
    for i, place in enumerate(places):
        style = look(i)
        name = f"round {found['rounds'][place] + 1}"
        lines.append(_line(name, found[solid][place], scale, style))
        other = Style(style.colour, "dash", style.symbol)
        lines.append(_line(f"{name}, {called}", found[dashed][place], scale, other))
    return lines


def _line(name: str, values: Sequence[float | None], scale: float, style: Style) -> Line:
    return Line(name, range(1, len(values) + 1), times(scale, values), style)
