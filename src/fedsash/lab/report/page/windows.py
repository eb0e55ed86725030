"""Every window of a run under two sliders: its size, and the round after which it ends."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ....tasks import Criterion
from ...pictures import Picture
from ...pictures.page import numbers
from ...runs import running_sums
from ...studies.window_map import best_at_the_end, grid_of
from .collect import Analysis, RunOnPage
from .markup import Html, code, data, join, some, tag

KIND = "map"

HINT = "The sliders begin at the window that is best at the last end; this choice has seen these very samples."


def explorer(analysis: Analysis, picture: Picture, place: Callable[..., Html], number: int) -> Html:
    """The sliders over one map of windows, what the chosen window comes to, and the two pictures that follow them."""
    found = analysis.content
    overview, curve = (
        replace(picture, title=title, panels=[panel], caption=caption)
        for title, panel, caption in zip(
            (picture.title, "The chosen number of models, whenever it ends"),
            picture.panels,
            (f"Every window of the run; the ring is the chosen one. {HINT}", "The line upright is the chosen end."),
            strict=True,
        )
    )
    sizes, _ = grid_of(found)
    sliders = [
        _slider("W, the number of models", "size", len(sizes), sizes.index(best_at_the_end(found))),
        _slider("ends after round", "end", len(found["ends"]), len(found["ends"]) - 1),
    ]
    return tag(
        "div",
        tag("div", *sliders, class_="sliders"),
        tag("p", class_="found", role="status"),
        tag("div", place(overview), place(curve, half=True), class_="pictures"),
        data(f"map-{number}", _content(found)),
        class_="explorer",
        data_map=f"map-{number}",
    )


def unmade(runs: Sequence[RunOnPage], analyses: Sequence[Analysis]) -> Html | None:
    """The command that makes the map of the runs that have saved sums, but no map. None if there is no such run."""
    having = {analysis.file.parent.parent for analysis in analyses if analysis.kind == KIND}
    without = [run for run in runs if run.folder not in having and running_sums.kept(run.folder / running_sums.FOLDER)]
    if not without:
        return None
    told = (
        f"The sums of the models are saved, but no map of the windows yet: {some([run.name for run in without])}. This "
        "makes it; a new page then has sliders for the number of models and the end."
    )
    commands = "\n".join(f"fedsash map {shlex.quote(str(run.folder))}" for run in without)
    return join([tag("p", told), code(commands)])


def _slider(label: str, name: str, count: int, start: int) -> Html:
    """A slider over the places 0, 1, ... of `count` values; beside it stands the value."""
    bar = tag("input", type="range", name=name, min=0, max=count - 1, value=start)
    return tag("label", tag("span", f"{label}: ", tag("output", class_="value")), bar)


def _content(found: dict[str, Any]) -> dict[str, Any]:
    """What windows.js reads: ends, sizes, values `[size][end]` and the model's, as drawn, and their name and unit."""
    criterion = Criterion(**found["metric"])
    sizes, grid = grid_of(found)
    own = [None if value is None else criterion.scale * value for value in found["model"]]
    return {
        "ends": found["ends"],
        "sizes": sizes,
        "values": [numbers(row) for row in grid],
        "model": numbers(own),
        "name": criterion.name,
        "share": criterion.share,
    }
