"""The figures of a reproduction, drawn from its finished runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
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
from ..pictures.styles import paired
from ..progress import Progress
from ..studies import pictures
from ..sweeps import PlannedRun
from .composed import Finding, composed, series
from .figures import AGAINST, Figure, Look
from .pick import STATISTICS
from .results import TO_TARGET, Measurement, Results, safe
from .statements import Place, Series, Verdict

if TYPE_CHECKING:
    from ..studies.opened import OpenRun

Say = Callable[[str], None]


@dataclass(frozen=True)
class Drawn:
    """The pictures of a figure, and what its numbers say of the paper's statements about it."""

    pictures: list[Path]
    verdicts: list[Verdict]


def draw(figure: Figure, results: Results, command: str, say: Say, progress: bool = True) -> Drawn:
    """Draw a figure into `pictures/`, and write the numbers of values into `tables/`.

    `say` is called with a line for everything that could not be drawn.
    """
    wheres = [look.where for look in figure.looks.values()] or [figure.where]
    asked = {run.name: run for where in wheres for run in results.asked(where)}
    if missing := [name for name in asked if name not in results.finished]:
        say(f"{figure.name}: without {len(missing)} runs that are not there, such as {missing[0]}")
    if len(missing) == len(asked):
        return Drawn([], [])
    if figure.kind == "curves":
        pictures, lines = _curves(figure, results)
    elif figure.kind == "values":
        pictures, lines = _values(figure, results, command)
    else:
        pictures, lines = _studied(figure, results, command, say, progress)
    verdicts = [statement.judged(lines) for statement in figure.statements] if pictures else []
    for name, picture in pictures.items():
        draw_picture(replace(picture, below=[str(verdict) for verdict in verdicts]), _picture(results.out, name))
    return Drawn([_picture(results.out, name) for name in pictures], verdicts)


Made = tuple[dict[str, Picture], dict[str, Series]]
"""Pictures by their names, and the lines of the one that statements are about."""


def _curves(figure: Figure, results: Results) -> Made:
    """The metric by round: one line for each label, the mean over its runs if there are several."""
    models, lines = {}, {}
    criterion = replace(results.criterion(figure.where), target=None)
    for label, pick in figure.lines.items():
        whole = figure.where | pick
        runs = results.runs(whole)
        if not runs:
            continue
        found = [results.curve(run, whole.model, figure.by) for run in runs]
        rounds = sorted(set.intersection(*map(set, found)))
        means = [sum(curve[round] for curve in found) / len(found) for round in rounds]
        # A line called "model" would be drawn in the quiet style of the global model.
        name = "the model" if label == "model" else label
        models[name] = dict(zip(rounds, smooth(means) if figure.smooth else means, strict=True))
        values: dict[Place, float] = {
            float(round): criterion.scale * mean for round, mean in zip(rounds, means, strict=True)
        }
        lines[name] = Series(values, runs[0].experiment.evaluation.last)
    lines = _alike(lines) if figure.by == "trips" else lines
    drawn = curves(Curves(criterion, "test", models), figure.title or figure.name, along=AGAINST[figure.by])
    return {figure.name: _paired(drawn)}, lines


def _alike(lines: dict[str, Series]) -> dict[str, Series]:
    """The lines with ends over as many trips as that of the line that is evaluated most often."""
    apart = {name: _spacing(line) for name, line in lines.items()}
    trips = min((apart[name] * line.last for name, line in lines.items()), default=0.0)
    return {name: replace(line, last=max(1, round(trips / apart[name]))) for name, line in lines.items()}


def _spacing(line: Series) -> float:
    """How many trips lie between two values of a line, on the average."""
    places = sorted(place for place in line.values if not isinstance(place, str))
    return (places[-1] - places[0]) / (len(places) - 1) if len(places) > 1 else 1.0


def _values(figure: Figure, results: Results, command: str) -> Made:
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
    numbers = {
        name: Series({x: math.nan if m.value is None else m.value for x, m in zip(labels, line, strict=True)})
        for name, line in lines.items()
    }
    return {figure.name: _paired(_plot(figure, labels, lines, _unit(figure, results)))}, numbers


def _unit(figure: Figure, results: Results) -> str:
    """What the values of a figure are, before the words for their statistic; empty for rounds and trips."""
    if figure.where.statistic in TO_TARGET or not results.runs(figure.where):
        return ""
    criterion = results.criterion(figure.where)
    return f"{criterion.name} (%), " if criterion.share else f"{criterion.name}, "


def _plot(figure: Figure, labels: list[str], lines: Mapping[str, list[Measurement]], unit: str) -> Picture:
    """A line for each name, with the standard deviation over seeds as error bars."""
    layers = []
    for i, (name, line) in enumerate(lines.items()):
        known = [(x, m.value, m.std or 0.0) for x, m in enumerate(line) if m.value is not None]
        if known:
            x, y, errors = zip(*known, strict=True)
            layers.append(Line(name, x, y, look(i), errors=errors if any(errors) else None))
    across = Axis(figure.label, -0.5, len(labels) - 0.5, dict(enumerate(labels)))
    upward = Axis(f"{unit}{STATISTICS[figure.where.statistic]}")
    panel = Panel(figure.name, across, upward, layers, 7, 4.5)
    return Picture(figure.title or figure.name, [panel])


def _paired(picture: Picture) -> Picture:
    """The picture with lines "A + ..." in the style of their line "A", dashed."""
    (panel,) = picture.panels
    styles = paired([layer.name for layer in panel.layers if isinstance(layer, Line)])
    layers = [replace(of, style=styles[of.name]) if isinstance(of, Line) else of for of in panel.layers]
    return replace(picture, panels=[replace(panel, layers=layers)])


def _studied(figure: Figure, results: Results, command: str, say: Say, progress: bool) -> Made:
    """The findings of a study in every run: one picture of them all, or one each."""
    findings = []
    for label, each in figure.looks.items():
        for group in _groups(each, figure.over, results):
            try:
                found = _found(each, group, results, command, progress)
            except (FedsashError, OSError) as error:
                say(f"{figure.name}: {group[0].name}: {' '.join(str(error).split())}")
            else:
                findings.append(Finding(label, ", ".join(_labels(group[0], figure, results)), found))
    title = figure.title or figure.name
    if figure.shows and findings:
        picture = composed(title, findings, figure.shows, figure.overlay)
        return {figure.name: picture}, series(picture)
    drawn = pictures([each.found for each in findings])
    return {
        "-".join(filter(None, [figure.name, each.label])): replace(
            picture, title=", ".join(filter(None, [title, each.label]))
        )
        for each, picture in zip(findings, drawn, strict=True)
    }, {}


def _groups(look: Look, over: str, results: Results) -> Iterator[list[PlannedRun]]:
    """The finished runs that a study looks at in groups: each alone, or together if they differ only in `over`."""
    groups: dict[tuple[tuple[str, str], ...], list[PlannedRun]] = {}
    for run in results.runs(look.where):
        key = tuple((axis, label) for axis, label in run.labels.items() if axis != over)
        groups.setdefault(key, []).append(run)
    yield from groups.values()


def _labels(run: PlannedRun, figure: Figure, results: Results) -> list[str]:
    """A run's labels on the axes on which the runs of a figure differ, also those that are not asked for this time."""
    looks, runs = figure.looks.values(), results.sweep.runs
    shown = [other.labels for look in looks for other in runs if look.where.takes(other.labels)]
    return [
        label
        for axis, label in run.labels.items()
        if axis != figure.over and len({labels[axis] for labels in shown}) > 1
    ]


def _found(look: Look, runs: list[PlannedRun], results: Results, command: str, progress: bool) -> dict[str, Any]:
    """The findings of a study in some runs, from the first run's `analyses/` if they are there."""
    study = look.at(runs[0].experiment.rounds)
    rounds = {run.name: run.experiment.rounds for run in runs}  # the models of a run that has grown are others
    mark = show({"study": repr(study), "runs": rounds})
    name = f"{study.kind}-{sha256(mark.encode()).hexdigest()[:12]}"
    with suppress(FileNotFoundError, RunError):  # if it is damaged, it is made again
        return read_table(results.folder(runs[0]) / "analyses" / f"{name}.json")
    from ..studies.opened import open_run

    with ExitStack() as stack:
        opened = [stack.enter_context(closing(open_run(results.folder(run)))) for run in runs]
        if models := getattr(study, "models", ()):
            study = replace(study, **{"models": tuple(_client(model, opened[0]) for model in models)})
        bars = list[Progress]()

        def tick(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(Progress(total, progress)))
            bars[0].update(done)

        return dict(study.write(opened, name, command, tick))


def _client(model: str, run: OpenRun) -> str:
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
