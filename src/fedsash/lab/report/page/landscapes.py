"""Pictures of the loss between models: lines, planes, and surfaces that turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .figures import MAPS, axis, line, numbers, plain, points, view

Content = dict[str, Any]
Made = tuple[str, list[dict[str, Any]], int]
"""Caption, views, height."""

STRIP = 0.4
WHAT = {"loss": "loss", "error": "error (%)"}


def profile(content: Content) -> Made:
    """Loss and error on the line from one model to another."""
    a, b = (str(name) for name in content["models"])
    ticks = [f"0<br>{plain(b)}", "0.25", "0.5", "0.75", f"1<br>{plain(a)}"]
    x = axis("β", tickvals=[0, 0.25, 0.5, 0.75, 1], ticktext=ticks)
    views = []
    for place, (key, name) in enumerate(WHAT.items()):
        values = line(name, place, **points(content["beta"], _values(key, content[key])))
        views.append(view(name, [values], xaxis=x, yaxis=axis(name)))
    return f"From {b} (β = 0) to {a} (β = 1) on a straight line, {_split(content)}.{_measured(content)}", views, 400


def plane(content: Content) -> Made:
    """Loss and error on the plane through three models, with their mean."""
    marks = {str(name): place for name, place in content["models"].items()}
    x, y = zip(*marks.values(), strict=True)
    dots: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers+text",
        **points(x, y),
        "text": [plain(name) for name in marks],
        "textposition": "top center",
        "textfont": {"color": "white", "size": 13, "shadow": "auto"},
        "marker": {"symbol": "circle", "size": 11, "color": "white", "line": {"color": "black", "width": 1.5}},
        "hoverinfo": "text",
    }
    traces = [dots]
    if mean := content.get("mean"):
        cross = {"symbol": "x-thin", "size": 13, "line": {"color": "white", "width": 3}}
        traces.append(dots | points([mean[0]], [mean[1]]) | {"text": ["mean"], "marker": cross})
    axes = _square(content, "distance in the plane", "distance in the plane")
    known = {key: [v for row in _checked(content, key) for v in row if v is not None] for key in WHAT}
    views = [view(name, [_contours(content, key, known[key]), *traces], **axes) for key, name in WHAT.items()]
    cut = "".join(_cut(known[key], key) for key in WHAT)
    caption = f"The plane through {', '.join(marks)}, {_split(content)}; the cross is their mean."
    return f"{caption}{_measured(content)}{cut}", views, 480


def surfaces(contents: Sequence[Content]) -> Callable[[Content], Made]:
    """Draws surfaces around models, all on the scales of these together."""
    known = {key: _known(contents, key) for key in WHAT}

    def draw(content: Content) -> Made:
        above, flat = [], _square(content, "first direction", "second direction")
        hills = [_hill(content, key, known[key]) for key in WHAT]
        for key, name in WHAT.items():
            above.append(view(f"{name}, from above", [_contours(content, key, known[key])], **flat))
        caption = f"Around {content['model']}, {_split(content)}, along two random directions with its filters' norms"
        shared = "; all surfaces of this page have the same scales" if len(contents) > 1 else ""
        cut = "".join(_cut(known[key], key) for key in WHAT)
        return f"{caption}{shared}.{_measured(content)}{cut}", hills + above, 480

    return draw


def _hill(content: Content, key: str, values: Sequence[float]) -> dict[str, Any]:
    """A surface that turns, with its contours on the floor, on the scale of these values."""
    z, (low, high) = _checked(content, key), _scale(values)
    lines = {"z": {"show": True, "usecolormap": True, "project": {"z": True}}}
    colours = {"cmin": low, "cmax": high, "colorscale": MAPS, "colorbar": _bar(WHAT[key])}
    shape = _places(content) | {"type": "surface", "z": z, "contours": lines}
    scene = {"xaxis": axis("first"), "yaxis": axis("second"), "zaxis": axis("", range=[low, high])}
    return view(f"{WHAT[key]}, in 3-D", [shape | colours], scene=scene)


def _known(contents: Sequence[Content], key: str) -> list[float]:
    """All values; a damaged surface has none, and is named when it is to be drawn."""
    known: list[float] = []
    for content in contents:
        with suppress(KeyError, TypeError, ValueError):
            known += [value for row in _checked(content, key) for value in row if value is not None]
    return known


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """The lowest value, and the highest unless its twentieth would take more than half of the scale."""
    ordered = sorted(values)
    low, most, high = ordered[0], ordered[math.ceil(0.95 * len(ordered)) - 1], ordered[-1]
    return (low, most) if high - low > 2 * (most - low) > 0 else (low, high)


def _cut(values: Sequence[float], name: str) -> str:
    """What the caption says of values beyond the scale."""
    top = _scale(values)[1]
    return f" Beyond {top:.4g} the {name} is cut off." if max(values) > top else ""


def _contours(content: Content, key: str, values: Sequence[float]) -> dict[str, Any]:
    """Filled contours, 15 levels of them, on the scale of these values."""
    z, (low, high) = _checked(content, key), _scale(values)
    colours = {"colorscale": MAPS, "zmin": low, "zmax": high, "zauto": False, "colorbar": _bar(WHAT[key])}
    levels = {"start": low, "end": high, "size": (high - low) / 15 or 1}
    shape = {"type": "contour", "z": z, "contours": levels, "line": {"width": 0.5}}
    return _places(content) | shape | colours


def _places(content: Content) -> dict[str, Any]:
    return {"x": numbers(content["x"]), "y": numbers(content["y"])}


def _checked(content: Content, key: str) -> list[list[float | None]]:
    """The grid `[y][x]`, errors in per cent; raises `ValueError` if it does not fit its places or holds no number."""
    grid = [_values(key, row) for row in content[key]]
    if len(grid) != len(content["y"]) or any(len(row) != len(content["x"]) for row in grid):
        raise ValueError(f"its {key} must have {len(content['y'])} rows of {len(content['x'])} values")
    if all(value is None for row in grid for value in row):
        raise ValueError(f"its {key} holds no number")
    return grid


def _values(key: str, values: Any) -> list[float | None]:
    """Losses as they are, errors in per cent."""
    return numbers([None if value is None else value * (100 if key == "error" else 1) for value in values])


def _bar(title: str) -> dict[str, Any]:
    return {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0, "tickformat": ".3~g"}


def _square(content: Content, x: str, y: str) -> dict[str, Any]:
    """Axes on which a step right is as long as a step up, unless that would leave no more than a strip."""
    wide, high = (max(content[way]) - min(content[way]) or 1 for way in "xy")
    alike = {"scaleanchor": "x"} if STRIP < wide / high < 1 / STRIP else {}
    return {"xaxis": axis(x, constrain="domain"), "yaxis": axis(y, constrain="domain", **alike)}


def _split(content: Content) -> str:
    return {"test": "on the test set", "train": "on training samples"}.get(content.get("split", ""), "evaluated")


def _measured(content: Content) -> str:
    """The models' own losses and errors in words, where they are known."""
    known = dict(content.get("at_models") or {}) | ({"mean": content["at_mean"]} if content.get("at_mean") else {})
    told = (f"{name}: loss {at['loss']:.4g}, error {100 * at['error']:.2f} %" for name, at in known.items())
    return f" {'; '.join(told)}." if known else ""
