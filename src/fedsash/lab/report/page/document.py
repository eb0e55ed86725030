"""The page as a whole: its sections in their order."""

from __future__ import annotations

import base64
import gzip
import shlex
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ....evaluation import NOT_EVALUATED
from ....methods import METHODS
from ....network.schedulers import SCHEDULERS
from ....runs import own_code
from ....runs.pictures import Field, Picture
from ....runs.pictures.curves import capital
from ....runs.pictures.page import plotly
from ....settings.errors import RunError, library, some
from ....system.machine import own_version
from ..collect import CollectedRun, Collection, by_metric
from ..comparison import unlike
from . import pictures, seeds, tables, windows
from .curves import curves
from .markup import Html, code, data, definitions, folded, join, notes, table, tag

SCRIPTS = ("picture.js", "windows.js", "page.js")
FEW = 6
"""The most runs whose details are open. With more runs, details are folded."""
MOST_NAMED = 3
"""So many runs are named in the title."""


def document(found: Collection, command: str) -> str:
    """The page as HTML. `command` is the command that makes it. Raises `ImportError` without plotly or scipy."""
    gallery = _Gallery()
    wrong = [*found.notes, *found.damaged, *unlike(found.runs)]
    sections = [
        ("seeds", "Means over seeds", _seeds(found.runs, gallery, wrong)),
        ("what", "What was run", _what(found)),
        ("results", "Results", _results(found.runs, gallery)),
        ("windows", "Any window, after the fact", _windows(found, gallery, wrong)),
        ("clients", "Each client's own results", _clients(found.runs, gallery, wrong)),
        ("missing", "Who was missing", tables.missing(found.runs)),
        ("privacy", "Privacy of the clients", _privacy(found.runs)),
        ("network", "On the network", _network(found.runs, gallery, wrong)),
        ("reproductions", "Published and measured", _reproductions(found, wrong)),
        ("analyses", "Analyses", _analyses(found, gallery, wrong)),
        ("data", "Who holds what", _data(found.runs, gallery, wrong)),
        ("cost", "Time and memory", tables.cost(found.runs) if found.runs else None),
        ("repeat", "How to repeat it", _repeat(found, command)),
    ]
    shown = [(id, head, content) for id, head, content in sections if content]
    links = tag("ul", *(tag("li", tag("a", head, href=f"#{id}")) for id, head, _ in shown))
    warnings = tag("section", tag("h2", "Notes"), notes(wrong), class_="warning") if wrong else None
    main = [tag("section", tag("h2", head, id=id), content) for id, head, content in shown]
    body = [
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("header", tag("h1", _title(found)), tag("p", _subtitle(found), class_="lead")),
        tag("nav", links, aria_label="Sections"),
        tag("main", warnings, *main, id="main", tabindex=-1),
        tag(
            "footer",
            tag("p", f"Made by fedsash {own_version()}. This page is complete in itself; it asks for nothing."),
        ),
        gallery.scripts(),
    ]
    return f"<!doctype html>\n{tag('html', _head(_title(found)), tag('body', *body), lang='en-GB')}\n"


class _Gallery:
    """The pictures of a page, and the scripts that draw them."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}

    def place(self, picture: Picture, source: str = "", command: str = "", half: bool = False) -> Html:
        """The element for a picture. A landscape is narrow, or `half` says it, so that two fit side by side."""
        half = half or any(isinstance(layer, Field) for panel in picture.panels for layer in panel.layers)
        spec = plotly(picture)
        id = f"figure-{len(self.specs)}"
        self.specs[id] = spec
        head = tag("h3", picture.title, id=f"{id}-title")
        plot = tag("div", class_="plot", style=f"height: {spec['height']}px")
        told = tag("figcaption", f"{source}: " if source else None, picture.caption, id=f"{id}-caption")
        inner = tag("figure", plot, told, aria_labelledby=f"{id}-title")
        how = folded("The command", code(command)) if command else None
        return tag("div", head, inner, how, class_="picture half" if half else "picture", data_figure=id)

    def scripts(self) -> Html | None:
        if not self.specs:
            return None
        with library("plotly", "a page with pictures", "fedsash[report]"):
            from plotly.offline import get_plotlyjs

        packed = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
        return join(
            [
                data("figures", self.specs),
                tag("script", Html(packed), type="application/gzip;base64", id="plotly"),
                *(tag("script", Html(_resource(name))) for name in SCRIPTS),
            ]
        )


def _head(named: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", named),
        tag("style", Html(_resource("style.css"))),
    )


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _title(collection: Collection) -> str:
    """The titles of the sweeps, and the names of runs of no sweep; without a sweep also what the runs are."""
    sweeps = [sweep.title for sweep in collection.sweeps]
    folders = [sweep.folder for sweep in collection.sweeps]
    names = [run.name for run in collection.runs if not any(map(run.folder.is_relative_to, folders))]
    if len(names) > MOST_NAMED:
        names = [f"{len(names)} runs"]
    if sweeps:
        return _listed(sweeps + names)
    what = _trained(collection.runs)
    return f"{what}: {_listed(names)}" if what else _listed(names)


def _listed(names: list[str]) -> str:
    """The names in a sentence: `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _trained(runs: Sequence[CollectedRun]) -> str:
    """The method and the data, as far as they are the same in all runs: `FedAvg on digits`."""
    methods = {_method(run) for run in runs}
    data = {_name(run, "data") for run in runs}
    shared = [names.pop() for names in (methods, data) if len(names) == 1]
    return " on ".join(filter(None, shared))


def _method(run: CollectedRun) -> str:
    """On a network the scheduler, unless it makes rounds of the method."""
    scheduler = _name(run, "scheduler")
    method = _name(run, "method")
    known: type | None = METHODS.get(method) if scheduler in ("", "synchronous") else SCHEDULERS.get(scheduler)
    return known.__name__ if known else method


def _name(run: CollectedRun, key: str) -> str:
    table = run.config.get(key)
    return str(table.get("name", "")) if isinstance(table, dict) else ""


def _subtitle(found: Collection) -> str:
    """How many runs there are, of how many rounds, and how many of them are not finished or failed."""
    count = len(found.runs)
    text = "1 run" if count == 1 else f"{count} runs"
    rounds = {run.rounds for run in found.runs}
    if len(rounds) == 1:
        text += f" of {max(rounds)} rounds"
    elif rounds:
        text += f" of {min(rounds)} to {max(rounds)} rounds"
    unfinished = sum(not run.finished for run in found.runs)
    if unfinished:
        text += f", {unfinished} not finished"
    failed = sum(len(sweep.failed) for sweep in found.sweeps)
    if failed:
        text += f", {failed} failed"
    return text


def _what(found: Collection) -> Html:
    runs = found.runs
    names_by_note: dict[str, list[str]] = {}
    for run in runs:
        if run.note:
            names_by_note.setdefault(run.note, []).append(run.name)
    lines = [f"{some(names)}: {note}" for note, names in names_by_note.items()]
    reasons = [[name, reason] for sweep in found.sweeps for name, reason in sweep.failed.items()]
    axes = [(axis, ", ".join(of)) for sweep in found.sweeps for axis, of in sweep.axes.items() if len(of) > 1]
    parts: list[str | None] = [definitions([*tables.common(runs), *axes]), notes(lines)]
    if len(runs) > 1:
        few = len(runs) <= FEW and not found.sweeps
        parts.append(folded("Settings that differ", tables.differing(runs), opened=few))
    if reasons:
        parts.append(tag("h3", "Failed runs"))
        parts.append(table("Why runs failed", ["run", "reason"], [(None, reasons)], texts=2))
    return join(parts)


def _results(runs: Sequence[CollectedRun], gallery: _Gallery) -> Html | None:
    evaluated = [run for run in runs if run.curves]
    if not evaluated:
        return tag("p", f"{capital(NOT_EVALUATED)}.") if runs else None
    return join([_by_one_metric(alike, gallery) for alike in by_metric(evaluated)])


def _by_one_metric(runs: Sequence[CollectedRun], gallery: _Gallery) -> Html:
    """The results of runs that one metric decides."""
    picture = curves(runs)
    assert picture is not None
    shown = [run for run in runs if run.summary["models"]]
    every = tables.results(shown)
    if len(runs) == 1:
        return join([gallery.place(picture), tag("h3", "Each model"), every])
    every = folded("Every model of every run", every, opened=len(runs) <= FEW)
    return join([gallery.place(picture), tag("h3", "Each run"), tables.overview(shown), every])


def _clients(runs: Sequence[CollectedRun], gallery: _Gallery, wrong: list[str]) -> Html | None:
    """The section on the clients' own results. None if no client has scored a model."""
    having = [run for run in runs if run.summary["over_clients"]]
    if not having:
        return None
    placed = [gallery.place(picture) for picture in pictures.clients(runs, wrong)]
    return join([*placed, *(tables.over_clients(alike) for alike in by_metric(having))])


def _privacy(runs: Sequence[CollectedRun]) -> Html | None:
    """The section on differential privacy. None if no run protects its clients."""
    private = [run for run in runs if run.summary.get("privacy")]
    return tables.privacy(private) if private else None


def _network(runs: Sequence[CollectedRun], gallery: _Gallery, wrong: list[str]) -> Html | None:
    """The section on the simulated network. None if no run was on one."""
    on_one = [run for run in runs if run.network]
    if not on_one:
        return None
    placed = [gallery.place(picture) for picture in pictures.on_network(on_one, wrong)]
    return join([tables.network(on_one), tag("div", *placed, class_="pictures")])


def _seeds(runs: Sequence[CollectedRun], gallery: _Gallery, wrong: list[str]) -> Html | None:
    """The means over runs that differ only in their seed. None if there are no such runs."""
    compared = seeds.comparisons(runs, wrong)
    if not compared:
        return None
    wrong += [f"not among the means over seeds: {run.name}, which is not finished" for run in runs if not run.finished]
    parts = [tables.over_seeds(compared[0])]
    for rows in compared[1:]:
        parts.append(folded(capital(rows[0].decided.title), tables.over_seeds(rows)))
    return join([*parts, *map(gallery.place, seeds.pictures(runs))])


def _windows(found: Collection, gallery: _Gallery, wrong: list[str]) -> Html | None:
    """The sliders over all windows of runs, or the command that makes their map. None if no run has saved its sums."""
    maps = [analysis for analysis in found.analyses if analysis.kind == windows.KIND]
    parts: list[Html | None] = []
    for analysis, picture in pictures.analyses(maps, wrong):
        if windows.explorable(picture):
            parts.append(windows.explorer(analysis, picture, gallery.place))
        else:
            parts.append(gallery.place(picture))
    return join([*parts, windows.unmade(found.runs, found.analyses)]) or None


def _reproductions(found: Collection, wrong: list[str]) -> Html | None:
    """The tables of reproductions. Notes that belong to several tables are written below the first."""
    parts: list[str | None] = []
    said: set[str] = set()
    for result in found.tables:
        try:
            rows = tables.reproduction(result)
        except RunError as error:
            wrong.append(f"table left out: {result.file}: {error}")
            continue
        command = result.content.get("command")
        told = [line for line in str(result.content.get("note") or "").splitlines() if line not in said]
        said.update(told)
        parts += [tag("h3", result.title), rows, *(tag("p", line) for line in told)]
        parts += [folded("The command", code(str(command)))] if command else []
    return join(parts) if parts else None


def _analyses(found: Collection, gallery: _Gallery, wrong: list[str]) -> Html | None:
    several = len({analysis.source for analysis in found.analyses}) > 1
    others = [analysis for analysis in found.analyses if analysis.kind != windows.KIND]
    placed = []
    for analysis, picture in pictures.analyses(others, wrong):
        command = str(analysis.content.get("command") or "")
        placed.append(gallery.place(picture, analysis.source if several else "", command))
    return tag("div", *placed, class_="pictures") if placed else None


def _data(runs: Sequence[CollectedRun], gallery: _Gallery, wrong: list[str]) -> Html | None:
    picture = pictures.partitions(runs, wrong)
    return None if picture is None else gallery.place(picture)


def _repeat(found: Collection, command: str) -> Html:
    known = [run for run in found.runs if run.repeatable]
    lines = [_command(run, "AGAIN" if len(known) == 1 else f"AGAIN/{run.name}") for run in known]
    commands = code("\n".join([*lines, command]))
    configs = [folded(f"Complete settings of {run.name}", code(run.config_text)) for run in found.runs if run.config]
    unknown = [run.name for run in found.runs if not run.repeatable]
    said = [f"made in Python, by a program that this page does not know: {name}" for name in unknown]
    said += [f"SOURCE is the run from which {run.name} was forked" for run in known if run.forked is not None]
    return join(
        [
            tag("p", "These commands train again what is shown here, and make this page."),
            commands if len(lines) <= FEW else folded(f"{len(lines) + 1} commands", commands),
            tables.versions(found.runs) if found.runs else None,
            tag("h3", "Complete settings"),
            notes(said),
            *configs,
        ]
    )


def _command(run: CollectedRun, out: str) -> str:
    """The command that trains a run into the folder `out`."""
    verb = "flower serve" if run.served else "network" if "network" in run.config else "run"
    more = " --clients N --superlink NAME" if run.served else ""
    more += "" if run.forked is None else f" --fork SOURCE@{run.forked}"
    more += " --own-code" if (run.folder / own_code.NAME).exists() else ""
    return f"fedsash {verb} {shlex.quote(str(run.folder / 'config.toml'))} --out {shlex.quote(out)}{more}"
