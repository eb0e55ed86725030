"""A paper's figures: what they select in the runs of a reproduction, and how they are drawn."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ...evaluation import Curves
from ...runs.interrupts import StoppedError
from ...runs.pictures import Axis, Line, Panel, Picture, look
from ...runs.pictures.curves import curves, smooth
from ...runs.pictures.paper import draw as draw_picture
from ...runs.pictures.picture import Layer
from ...runs.pictures.styles import paired
from ...runs.progress import Progress
from ...runs.time_limit import TIME_UP, time_limit
from ...settings.errors import FedsashError, RunError, check, one_line
from ...system.files import table as read_table
from ...system.files import write_table
from ..config import Experiment
from ..config.words import show
from ..studies import pictures
from ..studies.study import Study
from ..sweeps import PlannedRun
from .composed import Finding, composed
from .pick import ANY, SPEED_UPS, STATISTICS, AxisLabels, Pick, Picks, by_label, check_axis
from .results import TO_TARGET, Measurement, Results, safe
from .tables import START

if TYPE_CHECKING:
    from ..studies.opened import OpenRun

AGAINST = {"round": "round", "trips": "client trips"}
Models: TypeAlias = Callable[[int], Sequence[str]]
"""The names of a study's models in a run of so many rounds."""


@dataclass(frozen=True)
class Job:
    """What drawing needs beside the results: the `command` that draws it again, and `say`, called with a line for
    everything that could not be drawn."""

    command: str = ""
    say: Callable[[str], None] = print
    progress: bool = True


@dataclass(frozen=True)
class Figure(ABC):
    """A figure, or a part of a figure: its `name`, which its files have, its `title`, and a pick that all share.

    A title says what is shown. Data, network, rounds and seeds are those of the runs, and stand behind it when it is
    drawn.
    """

    name: str
    title: str
    where: Pick = ANY

    @abstractmethod
    def picks(self, axes: AxisLabels) -> list[Pick]:
        """What it selects, line by line, point by point, or panel by panel, from runs with these labels.

        Raises `SettingError` for an axis or a label that there is not.
        """

    def picks_on_networks(self, axes: AxisLabels) -> list[Pick]:
        """Those of its picks whose runs need a network."""
        return [pick for pick in self.picks(axes) if pick.on_network]

    def rounds(self, run: PlannedRun) -> set[int]:
        """The rounds of a run whose states it needs."""
        return set()

    def changed(self, settings: Mapping[str, Any]) -> Figure:
        """The figure with other settings of its study."""
        check(not settings, self.name, settings, "is no figure of a study: it has no such settings")
        return self

    def draw(self, results: Results, job: Job) -> list[Path]:
        """Draw it from the finished runs into `pictures/`. Returns the files."""
        runs: dict[str, PlannedRun] = {}
        for pick in self.picks(results.labels):
            for run in results.selected(pick):
                runs[run.name] = run
        missing = [name for name in runs if name not in results.finished]
        if missing:
            job.say(f"{self.name}: without {len(missing)} runs that are not there, such as {missing[0]}")
        if len(missing) == len(runs):
            return []
        finished = [run for name, run in runs.items() if name in results.finished]
        titled = replace(self, title=f"{self.title} ({trained(finished)})")
        files = []
        for name, picture in titled.pictures(results, job).items():
            file = _file(results.out, name)
            draw_picture(picture, file)
            files.append(file)
        return files

    @abstractmethod
    def pictures(self, results: Results, job: Job) -> dict[str, Picture]:
        """Its pictures by the names of their files."""


@dataclass(frozen=True)
class CurvesFigure(Figure):
    """The metric by round: one line for each pick, the mean over its runs if there are several.

    A line called "A + ..." is drawn as the line "A" is, dashed. `smoothed` curves are filtered as in IMA
    (Savitzky-Golay, window 10, order 2). Curves `by` "trips" are drawn against client trips on a network.
    """

    lines: Picks = field(default_factory=dict)
    smoothed: bool = False
    by: str = "round"

    def __post_init__(self) -> None:
        check(self.by in AGAINST, f"{self.name}.by", self.by, f"must be one of {', '.join(AGAINST)}")
        _check_picks(self.lines, f"{self.name}.lines")

    def picks(self, axes: AxisLabels) -> list[Pick]:
        return list(self.by_line(axes).values())

    def picks_on_networks(self, axes: AxisLabels) -> list[Pick]:
        return self.picks(axes) if self.by == "trips" else []

    def by_line(self, axes: AxisLabels) -> dict[str, Pick]:
        """The pick of each line."""
        self.where.check(axes, self.name)
        lines = by_label(self.lines, axes, f"{self.name}.lines")
        return {label: START | self.where | line for label, line in lines.items()}

    def pictures(self, results: Results, job: Job) -> dict[str, Picture]:
        models = {}
        lines = {label: pick for label, pick in self.by_line(results.labels).items() if results.runs(pick)}
        first = next(iter(lines.values()))
        criterion = replace(results.criterion(first), target=None)
        for label, pick in lines.items():
            # A line called "model" would be drawn in the quiet style of the global model.
            name = "the model" if label == "model" else label
            models[name] = self._mean_curve(pick, results)
        picture = curves(Curves(criterion, "test", models), self.title, along=AGAINST[self.by])
        return {self.name: _paired(picture)}

    def _mean_curve(self, pick: Pick, results: Results) -> dict[int, float]:
        """The mean over a pick's runs, in the rounds (or trips) that all of them have."""
        by_run = [results.curve(run, pick.model, self.by) for run in results.runs(pick)]
        rounds = sorted(set.intersection(*map(set, by_run)))
        means = [sum(curve[round] for curve in by_run) / len(by_run) for round in rounds]
        if self.smoothed:
            means = smooth(means)
        return dict(zip(rounds, means, strict=True))


@dataclass(frozen=True)
class ValuesFigure(Figure):
    """A number against the picks of `x`, which are called `label` in the picture: a line for each of `lines`.

    The standard deviation over seeds is drawn as error bars. The numbers are written into `tables/`, too.
    """

    lines: Picks = field(default_factory=dict)
    x: Picks = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        _check_picks(self.lines, f"{self.name}.lines")
        _check_picks(self.x, f"{self.name}.x")

    def picks(self, axes: AxisLabels) -> list[Pick]:
        return [pick for points in self.by_line(axes).values() for pick in points.values()]

    def by_line(self, axes: AxisLabels) -> dict[str, dict[str, Pick]]:
        """The picks of each line, by point."""
        self.where.check(axes, self.name)
        lines = by_label(self.lines, axes, f"{self.name}.lines")
        points = by_label(self.x, axes, f"{self.name}.x")
        picks: dict[str, dict[str, Pick]] = {}
        for name, line in lines.items():
            picks[name] = {}
            for label, point in points.items():
                pick = START | self.where | line | point
                requirement = f"only tables have speed-ups; a figure has {', '.join(SPEED_UPS.values())}"
                check(pick.statistic not in SPEED_UPS, f"{self.name}.statistic", pick.statistic, requirement)
                picks[name][label] = pick
        return picks

    def pictures(self, results: Results, job: Job) -> dict[str, Picture]:
        labels: list[str] = []
        lines: dict[str, list[Measurement]] = {}
        measured: dict[str, dict[str, Measurement]] = {}
        for name, points in self.by_line(results.labels).items():
            lines[name] = []
            measured[name] = {label: results.measured(pick) for label, pick in points.items()}
        # A point stays if one of the lines has runs there, so that all lines have the same points.
        for label in next(iter(measured.values())):
            if any(line[label].runs for line in measured.values()):
                labels.append(label)
                for name, line in measured.items():
                    lines[name].append(line[label])
        self._write(results, job, labels, lines)
        return {self.name: _paired(self._plot(labels, lines, self._unit(results)))}

    def _write(self, results: Results, job: Job, labels: list[str], lines: Mapping[str, list[Measurement]]) -> None:
        """Write the numbers as a table, a row for each point."""
        rows = []
        for i, label in enumerate(labels):
            rows.append([label, *(str(line[i]) for line in lines.values())])
        columns = [self.label, *lines]
        table = {"title": self.title, "columns": columns, "rows": rows, "note": "", "command": job.command}
        (results.out / "tables").mkdir(parents=True, exist_ok=True)
        write_table(results.out / "tables" / f"{safe(self.name)}.json", table)

    def _unit(self, results: Results) -> str:
        """What the values are, before the words for their statistic; empty for rounds and trips."""
        where = START | self.where
        if where.statistic in TO_TARGET or not results.runs(where):
            return ""
        criterion = results.criterion(where)
        return f"{criterion.name} (%), " if criterion.share else f"{criterion.name}, "

    def _plot(self, labels: list[str], lines: Mapping[str, list[Measurement]], unit: str) -> Picture:
        """The lines over the points; error bars only where a line has deviations."""
        layers = []
        for i, (name, line) in enumerate(lines.items()):
            x = []
            y = []
            deviations = []
            for place, measurement in enumerate(line):
                if measurement.value is not None:
                    x.append(place)
                    y.append(measurement.value)
                    deviations.append(measurement.std or 0.0)
            if x:
                errors = deviations if any(deviations) else None
                layers.append(Line(name, x, y, look(i), errors=errors))
        across = Axis(self.label, -0.5, len(labels) - 0.5, dict(enumerate(labels)))
        upward = Axis(f"{unit}{STATISTICS[(START | self.where).statistic]}")
        return Picture(self.title, [Panel(self.name, across, upward, layers, 7, 4.5)])


@dataclass(frozen=True)
class StudyPanel:
    """A panel of a study's figure: its models, by the number of rounds, and the runs, if it has its own."""

    models: Models | None = None
    where: Pick = ANY


@dataclass(frozen=True)
class StudyFigure(Figure):
    """What a `study` finds in each run of `where`: a plane, a line, a decomposition (see `lab/studies/`).

    Each finding is one picture. With `shows`, the names of some panels of these pictures, there is one picture of them
    all: a row for each name and run, a column for each of `panels`; without `panels` a column for each run. With
    `overlay` the lines of all runs are in one panel. A study of several runs together takes runs that differ only in
    the axis `over`.
    """

    study: Study | None = None
    panels: Mapping[str, StudyPanel] = field(default_factory=lambda: {"": StudyPanel()})
    shows: tuple[str, ...] = ()
    overlay: bool = False
    over: str = ""

    def __post_init__(self) -> None:
        check(self.study is not None, f"{self.name}.study", self.study, "must be a study")
        for label, panel in self.panels.items():
            requirement = f"the study {self.study and self.study.kind} looks at no models"
            check(panel.models is None or hasattr(self.study, "models"), f"{self.name}.panels", label, requirement)

    def picks(self, axes: AxisLabels) -> list[Pick]:
        picks = [self.where | panel.where for panel in self.panels.values()]
        for pick in picks:
            pick.check(axes, self.name)
        if self.over:
            check_axis(self.over, axes, f"{self.name}.over")
        return picks

    def changed(self, settings: Mapping[str, Any]) -> StudyFigure:
        assert self.study is not None
        known = [option.name for option in fields(self.study)]
        for key in settings:
            check(key in known, f"{self.name}.study", key, f"must be one of {', '.join(known)}")
        return replace(self, study=replace(self.study, **settings))

    def rounds(self, run: PlannedRun) -> set[int]:
        rounds: set[int] = set()
        for panel in self.panels.values():
            if (self.where | panel.where).takes(run.labels):
                rounds |= _rounds_of(self._at(panel, run.experiment.rounds))
        return rounds

    def _at(self, panel: StudyPanel, last: int) -> Study:
        """The study of a panel in a run of `last` rounds."""
        assert self.study is not None
        if panel.models is None:
            return self.study
        return replace(self.study, models=tuple(panel.models(last)))  # type: ignore[call-arg]

    def pictures(self, results: Results, job: Job) -> dict[str, Picture]:
        findings = []
        for label, panel in self.panels.items():
            for group in self._groups(panel, results):
                try:
                    table = self._studied(panel, group, results, job)
                except (FedsashError, OSError) as error:
                    job.say(f"{self.name}: {group[0].name}: {one_line(error)}")
                else:
                    findings.append(Finding(label, ", ".join(self._labels(group[0], results)), table))
        if self.shows and findings:
            return {self.name: composed(self.title, findings, self.shows, self.overlay)}
        drawn = pictures([finding.table for finding in findings])
        by_name = {}
        for finding, picture in zip(findings, drawn, strict=True):
            name = self.name
            title = self.title
            if finding.label:
                name = f"{name}-{finding.label}"
                title = f"{title}, {finding.label}"
            by_name[name] = replace(picture, title=title)
        return by_name

    def findings(self, results: Results, job: Job | None = None) -> Iterator[tuple[str, PlannedRun, dict[str, Any]]]:
        """What the study finds: for each panel and run (the first of a group) the panel, the run, the findings."""
        for label, panel in self.panels.items():
            for group in self._groups(panel, results):
                yield label, group[0], self._studied(panel, group, results, job or Job(progress=False))

    def _groups(self, panel: StudyPanel, results: Results) -> Iterator[list[PlannedRun]]:
        """The finished runs that the study looks at: each alone, or together those that differ only in `over`."""
        groups: dict[tuple[tuple[str, str], ...], list[PlannedRun]] = {}
        for run in results.runs(self.where | panel.where):
            key = tuple((axis, label) for axis, label in run.labels.items() if axis != self.over)
            groups.setdefault(key, []).append(run)
        yield from groups.values()

    def _labels(self, run: PlannedRun, results: Results) -> list[str]:
        """A run's labels on the axes on which the runs of the figure differ, those not asked for this time, too."""
        picks = self.picks(results.labels)
        shown = [other for other in results.sweep.runs if any(pick.takes(other.labels) for pick in picks)]
        labels = []
        for axis, label in run.labels.items():
            differs = len({other.labels[axis] for other in shown}) > 1
            if differs and axis != self.over:
                labels.append(label)
        return labels

    def _studied(self, panel: StudyPanel, runs: list[PlannedRun], results: Results, job: Job) -> dict[str, Any]:
        """The findings in some runs, from the first run's `analyses/` if they are there."""
        study = self._at(panel, runs[0].experiment.rounds)
        # The rounds belong to the file's name, because the models of a run that has grown are others.
        rounds = {run.name: run.experiment.rounds for run in runs}
        identity = show({"study": repr(study), "runs": rounds})
        name = f"{study.kind}-{sha256(identity.encode()).hexdigest()[:12]}"
        with suppress(FileNotFoundError, RunError):  # if it is damaged, it is made again
            return read_table(results.folder(runs[0]) / "analyses" / f"{name}.json")
        from ..studies.opened import open_run

        with ExitStack() as stack:
            opened = [stack.enter_context(closing(open_run(results.folder(run)))) for run in runs]
            models = getattr(study, "models", ())
            if models:
                study = replace(study, models=tuple(_client(model, opened[0]) for model in models))  # type: ignore[call-arg]
            bar: Progress | None = None
            limit = time_limit()

            def tick(done: int, total: int) -> None:
                nonlocal bar
                if bar is None:  # the study says only now how much it has to do
                    bar = stack.enter_context(Progress(total, job.progress))
                bar.update(done)
                if limit is not None:
                    limit.tick("study")
                    if limit.over:
                        raise StoppedError(TIME_UP)

            return dict(study.write(opened, name, job.command, tick))


def trained(runs: Sequence[PlannedRun]) -> str:
    """What runs were trained on, in words: their networks and data, their rounds, and how many seeds they have."""
    subjects = list(dict.fromkeys(f"{run.experiment.model.name} on {_data(run.experiment)}" for run in runs))
    if len(subjects) > 2:
        subjects = [f"{len(subjects)} networks or data sets"]
    rounds = dict.fromkeys(f"{run.experiment.rounds:,}" for run in runs)
    count = len({run.experiment.seed for run in runs})
    seeds = "1 seed" if count == 1 else f"{count} seeds"
    return f"{'; '.join(subjects)}; {' and '.join(rounds)} rounds, {seeds}"


def _data(experiment: Experiment) -> str:
    """The data set of an experiment in words."""
    return type(experiment.data).__name__


def _rounds_of(study: Study) -> set[int]:
    """The rounds that a study names: in its models, as in `client:3@20` or `round:50`, or in settings of its own."""
    rounds = set(getattr(study, "rounds", None) or ())
    round = getattr(study, "round", None)
    if round is not None:
        rounds.add(round)
    for model in getattr(study, "models", ()):
        match = re.search(r"(?:@|round:)(\d+)$", model)
        if match is not None:
            rounds.add(int(match[1]))
    return rounds


def first_clients(share: float, before: int = 0) -> Models:
    """The first three clients that train from the model of a round: a share of all rounds, less `before`."""
    return lambda last: [f"client:#{number}@{_round(share, last, -before)}" for number in (1, 2, 3)]


def global_models(share: float, shifts: Sequence[int] = (0,)) -> Models:
    """The global models of a share of all rounds, and of rounds a few later or earlier."""
    return lambda last: [f"round:{_round(share, last, shift)}" for shift in shifts]


def _round(share: float, last: int, shift: int) -> int:
    """The round that is `shift` after a share of all rounds: at least the first, and at most the last."""
    return min(max(round(share * last) + shift, 1), last)


def _client(model: str, run: OpenRun) -> str:
    """The model's name for `studies`. `#1` becomes the first client of the round, and so on."""
    match = re.fullmatch(r"client:#(\d+)@(\d+)", model)
    if match is None:
        return model
    experiment: Experiment = run.experiment
    number = int(match[1])
    round = int(match[2])
    ids = experiment.sampling.clients(round, run.federation.sizes, experiment.seed)
    if not 1 <= number <= len(ids):
        raise RunError(f"{model}: {len(ids)} clients take part in the round after {round}")
    return f"client:{ids[number - 1]}@{round}"


def _check_picks(picks: Picks, place: str) -> None:
    """Raise `SettingError` if there are no picks."""
    check(len(picks) > 0, place, picks, "must be an axis, a list of axes, or picks by label")


def _paired(picture: Picture) -> Picture:
    """The picture with lines "A + ..." in the style of their line "A", dashed."""
    (panel,) = picture.panels
    styles = paired([layer.name for layer in panel.layers if isinstance(layer, Line)])
    layers: list[Layer] = []
    for layer in panel.layers:
        if isinstance(layer, Line):
            layers.append(replace(layer, style=styles[layer.name]))
        else:
            layers.append(layer)
    return replace(picture, panels=[replace(panel, layers=layers)])


def _file(out: Path, name: str) -> Path:
    """The path of a picture."""
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    return out / "pictures" / f"{safe(name)}.png"
