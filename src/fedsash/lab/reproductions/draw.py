"""The figures of a reproduction, drawn from its finished runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...basics.errors import FedsashError, RunError
from ...evaluation import Curves
from ..config import Experiment
from ..config.words import show
from ..files import table as read_table
from ..files import write_table
from ..pictures import Axis, Line, Panel, Picture, look
from ..pictures.curves import curves
from ..pictures.paper import draw as draw_picture
from ..pictures.smoothing import smooth
from ..progress import Progress
from ..studies import pictures
from ..sweeps import PlannedRun
from .figures import AGAINST, Figure
from .pick import STATISTICS
from .results import Measurement, Results, safe

if TYPE_CHECKING:
    from ..studies.opened import OpenRun

Say = Callable[[str], None]


def draw(figure: Figure, results: Results, command: str, say: Say, progress: bool = True) -> list[Path]:
    """Draw a figure into `pictures/`, write its numbers into `tables/` or `analyses/`, and return the pictures.

    `say` is called with a line for everything that could not be drawn.
    """
    if missing := [run.name for run in results.asked(figure.where) if run.name not in results.finished]:
        say(f"{figure.name}: without {len(missing)} runs that are not there, such as {missing[0]}")
    if not results.runs(figure.where):
        return []
    if figure.kind == "curves":
        return _curves(figure, results)
    if figure.kind == "values":
        return _values(figure, results, command)
    return _analyses(figure, results, command, say, progress)


def _curves(figure: Figure, results: Results) -> list[Path]:
    """The metric by round: one line for each label, the mean over its runs if there are several."""
    models = {}
    for label, pick in figure.lines.items():
        whole = figure.where | pick
        found = [results.curve(run, whole.model, figure.by) for run in results.runs(whole)]
        if not found:
            continue
        rounds = sorted(set.intersection(*map(set, found)))
        means = [sum(curve[round] for curve in found) / len(found) for round in rounds]
        means = smooth(means) if figure.smooth else means
        # A line called "model" would be drawn in the quiet style of the global model.
        name = "the model" if label == "model" else label
        models[name] = dict(zip(rounds, means, strict=True))
    path = _picture(results.out, figure.name)
    criterion = replace(results.criterion(figure.where), target=None)
    drawn = curves(Curves(criterion, "test", models), figure.title or figure.name, along=AGAINST[figure.by])
    draw_picture(drawn, path)
    return [path]


def _values(figure: Figure, results: Results, command: str) -> list[Path]:
    """A number against the labels of an axis, as a picture and as a table."""
    found = {
        name: [results.measured(figure.where | pick | x) for x in figure.x.values()]
        for name, pick in figure.lines.items()
    }
    kept = [i for i in range(len(figure.x)) if any(line[i].runs for line in found.values())]
    labels = [list(figure.x)[i] for i in kept]
    lines = {name: [line[i] for i in kept] for name, line in found.items()}
    rows = [[label, *(str(line[i]) for line in lines.values())] for i, label in enumerate(labels)]
    table = {"title": figure.title, "columns": [figure.label, *lines], "rows": rows, "note": "", "command": command}
    (results.out / "tables").mkdir(parents=True, exist_ok=True)
    write_table(results.out / "tables" / f"{safe(figure.name)}.json", table)
    path = _picture(results.out, figure.name)
    draw_picture(_plot(figure, labels, lines), path)
    return [path]


def _plot(figure: Figure, labels: list[str], lines: Mapping[str, list[Measurement]]) -> Picture:
    """A line for each name, with the standard deviation over seeds as error bars."""
    layers = []
    for i, (name, line) in enumerate(lines.items()):
        known = [(x, m.value, m.std or 0.0) for x, m in enumerate(line) if m.value is not None]
        if known:
            x, y, errors = zip(*known, strict=True)
            layers.append(Line(name, x, y, look(i), errors=errors if any(errors) else None))
    across = Axis(figure.label, -0.5, len(labels) - 0.5, dict(enumerate(labels)))
    panel = Panel(figure.name, across, Axis(STATISTICS[figure.where.statistic]), layers, 7, 4.5)
    return Picture(figure.title or figure.name, [panel])


def _analyses(figure: Figure, results: Results, command: str, say: Say, progress: bool) -> list[Path]:
    """The findings of a study in every run, drawn on common scales."""
    found = {}
    for group in _groups(figure, results):
        name = "-".join([figure.name, *_labels(group[0], results)])
        file = results.out / "analyses" / f"{safe(name)}.json"
        try:
            found[_picture(results.out, name)] = _analysed(figure, group, results, file, command, progress)
        except (FedsashError, OSError) as error:
            say(f"{figure.name}: {group[0].name}: {' '.join(str(error).split())}")
    for path, picture in zip(found, pictures(list(found.values())), strict=True):
        draw_picture(picture, path)
    return list(found)


def _groups(figure: Figure, results: Results) -> Iterator[list[PlannedRun]]:
    """The finished runs of a figure in groups: each alone, or together if they differ only in the axis `over`."""
    groups: dict[tuple[tuple[str, str], ...], list[PlannedRun]] = {}
    for run in results.runs(figure.where):
        key = tuple((axis, label) for axis, label in run.labels.items() if axis != figure.over)
        groups.setdefault(key, []).append(run)
    yield from groups.values()


def _analysed(
    figure: Figure, runs: list[PlannedRun], results: Results, file: Path, command: str, progress: bool
) -> dict[str, Any]:
    """An analysis of some runs. If the same figure has made it before, it is read instead."""
    mark = show({"figure": repr(figure), "runs": [run.name for run in runs]})
    with suppress(FileNotFoundError, RunError):  # if it is damaged, it is made again
        if (found := read_table(file)).get("made_for") == mark:
            return found
    from ..studies.opened import open_run

    opened = []
    try:
        opened += [open_run(results.folder(run)) for run in runs]
        analysis = _found(figure, opened, command, progress)
    finally:
        for run in opened:
            run.close()
    title = ", ".join([figure.title or figure.name, *_labels(runs[0], results)])
    analysis |= {"title": title, "made_for": mark}
    file.parent.mkdir(exist_ok=True)
    write_table(file, analysis)
    return read_table(file)


def _labels(run: PlannedRun, results: Results) -> list[str]:
    """A run's labels on the axes that have several labels here."""
    return [label for axis, label in run.labels.items() if len(results.sweep.axes[axis]) > 1]


def _found(figure: Figure, runs: list[OpenRun], command: str, progress: bool) -> dict[str, Any]:
    """The findings of the figure's study in these runs, with the names of their own models."""
    study, bars = figure.study, list[Progress]()
    assert study is not None
    if models := getattr(study, "models", ()):
        study = replace(study, **{"models": tuple(_named(model, runs[0]) for model in models)})
    with ExitStack() as stack:

        def tick(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(Progress(total, progress)))
            bars[0].update(done)

        return dict(study.write(runs, safe(figure.name), command, tick))


def _named(model: str, run: OpenRun) -> str:
    """The model's name for `studies`. `#1` becomes the first client of the round, and so on."""
    place = re.fullmatch(r"client:#(\d+)@(\d+)", model)
    if place is None:
        return model
    experiment: Experiment = run.experiment
    number, round = int(place[1]), int(place[2])
    ids = experiment.sampling.clients(round, run.federation.sizes, experiment.seed)
    if not 1 <= number <= len(ids):
        raise RunError(f"{model}: {len(ids)} clients take part in the round after {round}")
    return f"client:{ids[number - 1]}@{round}"


def _picture(out: Path, name: str) -> Path:
    """The path of a picture."""
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    return out / "pictures" / f"{safe(name)}.png"
