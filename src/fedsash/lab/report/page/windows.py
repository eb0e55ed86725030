"""Every window of a run under two sliders: its size, and the round after which it ends."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from ....averages import sum_files
from ....runs import running_sums
from ....runs.pictures import Picture
from ....settings.errors import some
from ....tasks import Criterion
from ..collect import Analysis, CollectedRun
from .markup import Html, code, join, tag

KIND = "map"
EVERY = (
    "Every window of the run. The ring is the chosen one, and a click chooses another. At first it is the window that "
    "is best at the last end; this choice has seen these very samples."
)
CURVE = (
    "Windows of the chosen number of models, and the model itself where it was evaluated. The line is the chosen end."
)


def explorable(picture: Picture) -> bool:
    """Whether a map has several sizes and several ends, so that there is something to choose."""
    return len(picture.panels) == 2


def explorer(analysis: Analysis, picture: Picture, place: Callable[..., Html]) -> Html:
    """The sliders over one map of windows, what the chosen window comes to, and the two pictures that follow them.

    windows.js takes the numbers from the pictures.
    """
    from ...studies.window_map import best_at_the_end, grid_of

    content = analysis.content
    every, by_end = picture.panels
    overview = replace(picture, panels=[every], caption=EVERY)
    curve = Picture("The chosen number of models, whenever it ends", [by_end], caption=CURVE)
    sizes = grid_of(content)[0]
    criterion = Criterion(**content["metric"])
    ends = len(content["ends"])
    sliders = [
        _slider("W, the number of models", "size", len(sizes), sizes.index(best_at_the_end(content))),
        _slider("ends after round", "end", ends, ends - 1),
    ]
    return tag(
        "div",
        tag("div", *sliders, class_="sliders"),
        tag("p", class_="found", role="status"),
        tag("div", place(overview), place(curve, half=True), class_="pictures"),
        class_="explorer",
        data_metric=criterion.name,
        data_share=criterion.share,
    )


def unmade(runs: Sequence[CollectedRun], analyses: Sequence[Analysis]) -> Html | None:
    """The command that makes the map of the runs that have saved sums, but no map. None if there is no such run."""
    mapped = {analysis.file.parent.parent for analysis in analyses if analysis.kind == KIND}
    unmapped = []
    for run in runs:
        has_sums = sum_files.kept(run.folder / running_sums.FOLDER)
        if has_sums and run.folder not in mapped:
            unmapped.append(run)
    if not unmapped:
        return None
    remark = (
        f"The sums of the models are saved, but no map of the windows yet: {some([run.name for run in unmapped])}. "
        "This makes it; a new page then has sliders for the number of models and the end."
    )
    commands = "\n".join(f"fedsash map {shlex.quote(str(run.folder))}" for run in unmapped)
    return join([tag("p", remark), code(commands)])


def _slider(label: str, name: str, count: int, start: int) -> Html:
    """A slider over the places 0, 1, ... of `count` values; its value stands beside the label."""
    bar = tag("input", type="range", name=name, min=0, max=count - 1, value=start)
    return tag("label", tag("span", f"{label}: ", tag("output")), bar)
