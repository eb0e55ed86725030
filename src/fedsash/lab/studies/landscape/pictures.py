"""The pictures of lines, planes and surfaces, from the findings."""

from __future__ import annotations

from collections.abc import Sequence

from ....runs.pictures import Axis, Field, Line, Panel, Picture, Points, Rule, look
from ....runs.pictures.scales import INNER
from ....tasks import Criterion
from ..study import Found, number, split_in_words, times

STRIP = 0.4
"""A plane is stretched if its width is below this share of its height, or its height below this share of its width."""


def of_line(found: Found) -> Picture:
    """Loss above error. The two models are marked."""
    a, b = (str(name) for name in found["models"])
    below = Axis("beta")
    panels = []
    for place, (key, (label, factor)) in enumerate(_shown(found).items()):
        line = Line("", found["beta"], times(factor, found[key]), look(place))
        panels.append(
            Panel(label, below, Axis(label), [*(Rule(1, "x", a), Rule(0, "x", b)), line], width=7, height=2.7)
        )
    caption = f"From {b} (beta = 0) to {a} (beta = 1) on a straight line, {split_in_words(found)}.{_measured(found)}"
    return Picture(found["title"], panels, caption=caption)


def of_plane(found: Found) -> Picture:
    """Contours of loss and error, with the three models, and a cross for their mean."""
    x, y = zip(*found["models"].values(), strict=True)
    marks = [Points(list(found["models"]), x, y)]
    if mean := found.get("mean"):
        marks.append(Points(["mean"], [mean[0]], [mean[1]], "cross"))
    ratio = _extent(found["y"]) / _extent(found["x"])
    flat = ratio < STRIP
    distance = Axis("distance in parameter space")
    panels = [
        Panel(
            field.label,
            distance,
            distance,
            [field, *marks],
            width=8 if flat else 5.2,
            height=3.2 if flat else min(max(4.2 * ratio, 2.4), 7),
            square=STRIP < ratio < 1 / STRIP,
        )
        for field in _fields(found)
    ]
    caption = f"The plane through {', '.join(found['models'])}, {split_in_words(found)}; the cross is their mean."
    return Picture(found["title"], panels, columns=1 if flat else 2, caption=f"{caption}{_measured(found)} {_cut()}")


def of_surface(found: Found) -> Picture:
    """The loss and the error in three dimensions, and as contours."""
    x = Axis("a, along the first direction")
    y = Axis("b, along the second")
    centre = Points([""], [0], [0])
    deep = [Panel(f"{field.label}, in 3-D", Axis("a"), Axis("b"), [field]) for field in _fields(found, relief=True)]
    flat = [
        Panel(f"{field.label}, from above", x, y, [field, centre], width=5.4, square=True) for field in _fields(found)
    ]
    caption = (
        f"Around {found['model']}, {split_in_words(found)}, along two random directions a and b with its filters' "
        f"norms.{_measured(found)} Surfaces that are shown together have the same scales. {_cut()}"
    )
    return Picture(found["title"], deep + flat, columns=2, caption=caption)


def _shown(found: Found) -> dict[str, tuple[str, float]]:
    """The measured quantities: the label, and the factor between the number and the shown value."""
    criterion = Criterion(**found["metric"])
    label = criterion.label(name=criterion.error)
    second = {} if criterion.name == "loss" else {"error": (label, float(criterion.scale))}
    return {"loss": ("loss", 1.0)} | second


def _fields(found: Found, relief: bool = False) -> list[Field]:
    return [
        Field(label, found["x"], found["y"], [times(factor, row) for row in found[key]], relief)
        for key, (label, factor) in _shown(found).items()
    ]


def _extent(values: Sequence[float]) -> float:
    return max(values) - min(values) or 1


def _measured(found: Found) -> str:
    """The models' own losses and errors in words, if they are known."""
    known = dict(found.get("at_models") or {}) | ({"mean": found["at_mean"]} if found.get("at_mean") else {})
    criterion = Criterion(**found["metric"])
    told = (
        f"{name}: loss {number(at['loss'])}, {criterion.error} {criterion.text(at['error'], 2)}"
        for name, at in known.items()
    )
    return f" {'; '.join(told)}." if known else ""


def _cut() -> str:
    return f"The scale ends where {100 * INNER:g} % of the points do."
