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
from ..comparison import of_other_data, unlike
from . import pictures, seeds, tables, windows
from .curves import common_value, curves
from .markup import Html, code, data, definitions, folded, join, notes, table, tag

SCRIPTS = ("picture.js", "windows.js", "page.js")
FEW = 6
"""The most runs whose details are open. With more runs, details are folded."""
MOST_NAMED = 3
"""So many runs are named in the title."""


def document(collection: Collection, command: str) -> str:
    """The page as HTML. `command` is the command that makes it. Raises `ImportError` without plotly or scipy."""
    gallery = _Gallery()
    warnings = [*collection.notes, *collection.damaged]
    warnings += [*unlike(collection.runs), *of_other_data(collection.runs)]
    sections = _sections(collection, command, gallery, warnings)
    links = []
    parts: list[Html | None] = []
    if warnings:  # after the sections, which add theirs
        parts.append(tag("section", tag("h2", "Notes"), notes(warnings), class_="warning"))
    for id, head, content in sections:
        links.append(tag("li", tag("a", head, href=f"#{id}")))
        parts.append(tag("section", tag("h2", head, id=id), content))
    title = _title(collection)
    footer = f"Made by fedsash {own_version()}. This page is complete in itself; it asks for nothing."
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("header", tag("h1", title), tag("p", _subtitle(collection), class_="lead")),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *parts, id="main", tabindex=-1),
        tag("footer", tag("p", footer)),
        gallery.scripts(),
    )
    return f"<!doctype html>\n{tag('html', _head(title), body, lang='en-GB')}\n"


def _sections(
    collection: Collection, command: str, gallery: _Gallery, warnings: list[str]
) -> list[tuple[str, str, Html]]:
    """The id, the head and the content of each section, without the empty ones. `warnings` gets more lines."""
    runs = collection.runs
    sections = [
        ("seeds", "Means over seeds", _seeds(runs, gallery, warnings)),
        ("results", "Results", _results(runs, gallery)),
        ("what", "What was run", _what(collection)),
        ("windows", "Any window, after the fact", _windows(collection, gallery, warnings)),
        ("clients", "Each client's own results", _clients(runs, gallery, warnings)),
        ("missing", "Who was missing", tables.missing(runs)),
        ("privacy", "Privacy of the clients", _privacy(runs)),
        ("network", "On the network", _network(runs, gallery, warnings)),
        ("reproductions", "Published and measured", _reproductions(collection, warnings)),
        ("analyses", "Analyses", _analyses(collection, gallery, warnings)),
        ("data", "Who holds what", _data(runs, gallery, warnings)),
        ("cost", "Time and memory", tables.cost(runs)),
        ("repeat", "How to repeat it", _repeat(collection, command)),
    ]
    return [(id, head, content) for id, head, content in sections if content]


class _Gallery:
    """The pictures of a page, and the scripts that draw them."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}
        """what the scripts draw, by the id of its element"""

    def place(self, picture: Picture, source: str = "", command: str = "", half: bool = False) -> Html:
        """The element for a picture, of half the page's width if `half`.

        A landscape is always narrow, so that two stand side by side.
        """
        css_class = "picture"
        if half or _is_landscape(picture):
            css_class = "picture half"
        spec = plotly(picture)
        id = f"figure-{len(self.specs)}"
        self.specs[id] = spec
        belongs_to = f"{source}: " if source else None
        head = tag("h3", picture.title, id=f"{id}-title")
        plot = tag("div", class_="plot", style=f"height: {spec['height']}px")
        caption = tag("figcaption", belongs_to, picture.caption, id=f"{id}-caption")
        figure = tag("figure", plot, caption, aria_labelledby=f"{id}-title")
        how = folded("The command", code(command)) if command else None
        return tag("div", head, figure, how, class_=css_class, data_figure=id)

    def scripts(self) -> Html | None:
        """The scripts with what they draw, and plotly, compressed, as the page must do without a network.

        None without pictures.
        """
        if not self.specs:
            return None
        with library("plotly", "a page with pictures", "fedsash[report]"):
            from plotly.offline import get_plotlyjs

        compressed = gzip.compress(get_plotlyjs().encode(), 9, mtime=0)
        encoded = base64.b64encode(compressed).decode()
        parts = [
            data("figures", self.specs),
            tag("script", Html(encoded), type="application/gzip;base64", id="plotly"),
        ]
        for name in SCRIPTS:
            parts.append(tag("script", Html(_resource(name))))
        return join(parts)


def _is_landscape(picture: Picture) -> bool:
    layers = [layer for panel in picture.panels for layer in panel.layers]
    return any(isinstance(layer, Field) for layer in layers)


def _head(title: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(_resource("style.css"))),
    )


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _title(collection: Collection) -> str:
    """The titles of the sweeps, and the names of runs of no sweep; without a sweep also what the runs are."""
    sweeps = [sweep.title for sweep in collection.sweeps]
    folders = [sweep.folder for sweep in collection.sweeps]
    names = []
    for run in collection.runs:
        if not any(run.folder.is_relative_to(folder) for folder in folders):
            names.append(run.name)
    if len(names) > MOST_NAMED:
        names = [f"{len(names)} runs"]
    if sweeps:
        return _listed(sweeps + names)
    trained = _trained(collection.runs)
    if not trained:
        return _listed(names)
    return f"{trained}: {_listed(names)}"


def _listed(names: list[str]) -> str:
    """The names in a sentence: `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _trained(runs: Sequence[CollectedRun]) -> str:
    """The method and the data, as far as they are the same in all runs: `FedAvg on digits`."""
    methods = {_method(run) for run in runs}
    data = {_name(run, "data") for run in runs}
    words = [common_value(methods), common_value(data)]
    return " on ".join(word for word in words if word)


def _method(run: CollectedRun) -> str:
    """On a network the scheduler, unless it makes rounds of the method."""
    scheduler = _name(run, "scheduler")
    method = _name(run, "method")
    thing: type | None = SCHEDULERS.get(scheduler)
    if scheduler in ("", "synchronous"):
        thing = METHODS.get(method)
    if thing is None:
        return method
    return thing.__name__


def _name(run: CollectedRun, key: str) -> str:
    """The name in a table of the run's settings; empty without one."""
    settings = run.config.get(key)
    if not isinstance(settings, dict):
        return ""
    return str(settings.get("name", ""))


def _subtitle(collection: Collection) -> str:
    """How many runs there are, of how many rounds, and how many of them are not finished or failed."""
    runs = collection.runs
    text = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    rounds = {run.rounds for run in runs}
    if len(rounds) == 1:
        text += f" of {max(rounds)} rounds"
    elif rounds:
        text += f" of {min(rounds)} to {max(rounds)} rounds"
    unfinished = sum(not run.finished for run in runs)
    if unfinished:
        text += f", {unfinished} not finished"
    failed = sum(len(sweep.failed) for sweep in collection.sweeps)
    if failed:
        text += f", {failed} failed"
    return text


def _what(collection: Collection) -> Html:
    """The section on the settings, those that are the same in all runs and the others, and why runs failed."""
    runs = collection.runs
    names_by_note: dict[str, list[str]] = {}
    for run in runs:
        if run.note:
            names_by_note.setdefault(run.note, []).append(run.name)
    lines = [f"{some(names)}: {note}" for note, names in names_by_note.items()]
    settings = tables.common(runs)
    failed = []
    for sweep in collection.sweeps:
        failed += [[name, reason] for name, reason in sweep.failed.items()]
        settings += [(axis, ", ".join(labels)) for axis, labels in sweep.axes.items() if len(labels) > 1]
    parts: list[str | None] = [definitions(settings), notes(lines)]
    if len(runs) > 1:
        few = len(runs) <= FEW and not collection.sweeps
        parts.append(folded("Settings that differ", tables.differing(runs), opened=few))
    if failed:
        parts.append(tag("h3", "Failed runs"))
        parts.append(table("Why runs failed", ["run", "reason"], [(None, failed)], texts=2))
    return join(parts)


def _results(runs: Sequence[CollectedRun], gallery: _Gallery) -> Html | None:
    """The section on the models' results, metric by metric. None without runs."""
    if not runs:
        return None
    evaluated = [run for run in runs if run.curves]
    if not evaluated:
        return tag("p", f"{capital(NOT_EVALUATED)}.")
    return join([_by_one_metric(group, gallery) for group in by_metric(evaluated)])


def _by_one_metric(runs: Sequence[CollectedRun], gallery: _Gallery) -> Html:
    """The results of runs that one metric decides."""
    picture = curves(runs)
    assert picture is not None
    scored = [run for run in runs if run.summary["models"]]
    results = tables.results(scored)
    if len(runs) == 1:
        return join([gallery.place(picture), tag("h3", "Each model"), results])
    all_results = folded("Every model of every run", results, opened=len(runs) <= FEW)
    return join([gallery.place(picture), tag("h3", "Each run"), tables.overview(scored), all_results])


def _clients(runs: Sequence[CollectedRun], gallery: _Gallery, warnings: list[str]) -> Html | None:
    """The section on the clients' own results. None if no client has scored a model."""
    scored = [run for run in runs if run.summary["over_clients"]]
    if not scored:
        return None
    parts = [gallery.place(picture) for picture in pictures.clients(runs, warnings)]
    parts += [tables.over_clients(group) for group in by_metric(scored)]
    return join(parts)


def _privacy(runs: Sequence[CollectedRun]) -> Html | None:
    """The section on differential privacy. None if no run protects its clients."""
    private = [run for run in runs if run.summary.get("privacy")]
    return tables.privacy(private) if private else None


def _network(runs: Sequence[CollectedRun], gallery: _Gallery, warnings: list[str]) -> Html | None:
    """The section on the simulated network. None if no run was on one."""
    on_network = [run for run in runs if run.network]
    if not on_network:
        return None
    placed = [gallery.place(picture) for picture in pictures.on_network(on_network, warnings)]
    return join([tables.network(on_network), tag("div", *placed, class_="pictures")])


def _seeds(runs: Sequence[CollectedRun], gallery: _Gallery, warnings: list[str]) -> Html | None:
    """The means over runs that differ only in their seed. None if there are no such runs."""
    compared = seeds.comparisons(runs, warnings)
    if not compared:
        return None
    for run in runs:
        if not run.finished:
            warnings.append(f"not among the means over seeds: {run.name}, which is not finished")
    parts = [tables.over_seeds(rows) for rows in compared.pop("")]
    for over_clients in compared.values():
        for rows in over_clients:
            parts.append(folded(capital(rows[0].decided.title), tables.over_seeds(rows)))
    parts += [gallery.place(picture) for picture in seeds.pictures(runs)]
    return join(parts)


def _windows(collection: Collection, gallery: _Gallery, warnings: list[str]) -> Html | None:
    """The sliders over all windows of runs, or the command that makes their map. None if no run has saved its sums."""
    maps = [analysis for analysis in collection.analyses if analysis.kind == windows.KIND]
    parts: list[Html | None] = []
    for analysis, picture in pictures.analyses(maps, warnings):
        if windows.explorable(picture):
            parts.append(windows.explorer(analysis, picture, gallery.place))
        else:
            parts.append(gallery.place(picture))
    parts.append(windows.unmade(collection.runs, collection.analyses))
    return join(parts) or None


def _reproductions(collection: Collection, warnings: list[str]) -> Html | None:
    """The tables of reproductions. Notes that belong to several tables are written below the first."""
    parts: list[str | None] = []
    written: set[str] = set()
    for result in collection.tables:
        try:
            rows = tables.reproduction(result)
        except RunError as error:
            warnings.append(f"table left out: {result.file}: {error}")
            continue
        parts += [tag("h3", result.title), rows]
        lines = str(result.content.get("note") or "").splitlines()
        parts += [tag("p", line) for line in lines if line not in written]
        written.update(lines)
        command = result.content.get("command")
        if command:
            parts.append(folded("The command", code(str(command))))
    return join(parts) if parts else None


def _analyses(collection: Collection, gallery: _Gallery, warnings: list[str]) -> Html | None:
    """The pictures of the studies but maps, each with the run that it is of, if they are of several."""
    several = len({analysis.source for analysis in collection.analyses}) > 1
    others = [analysis for analysis in collection.analyses if analysis.kind != windows.KIND]
    placed = []
    for analysis, picture in pictures.analyses(others, warnings):
        command = str(analysis.content.get("command") or "")
        source = analysis.source if several else ""
        placed.append(gallery.place(picture, source, command))
    if not placed:
        return None
    return tag("div", *placed, class_="pictures")


def _data(runs: Sequence[CollectedRun], gallery: _Gallery, warnings: list[str]) -> Html | None:
    """The section on the clients' samples. None if no run has written a partition that can be drawn."""
    picture = pictures.partitions(runs, warnings)
    return None if picture is None else gallery.place(picture)


def _repeat(collection: Collection, command: str) -> Html:
    """The section with the commands that train the runs again and make the page, the versions and all settings."""
    runs = collection.runs
    repeatable = [run for run in runs if run.repeatable]
    lines = []
    for run in repeatable:
        out = "AGAIN" if len(repeatable) == 1 else f"AGAIN/{run.name}"
        lines.append(_command(run, out))
    commands = code("\n".join([*lines, command]))
    if len(lines) > FEW:
        commands = folded(f"{len(lines) + 1} commands", commands)
    remarks = []
    for run in runs:
        if not run.repeatable:
            remarks.append(f"made in Python, by a program that this page does not know: {run.name}")
    for run in repeatable:
        if run.forked is not None:
            remarks.append(f"SOURCE is the run from which {run.name} was forked")
    parts = [
        tag("p", "These commands train again what is shown here, and make this page."),
        commands,
        tables.versions(runs),
        tag("h3", "Complete settings"),
        notes(remarks),
    ]
    for run in runs:
        if run.config:
            parts.append(folded(f"Complete settings of {run.name}", code(run.config_text)))
    return join(parts)


def _command(run: CollectedRun, out: str) -> str:
    """The command that trains a run into the folder `out`."""
    verb = "run"
    more = ""
    if run.served:
        verb = "flower serve"
        more = " --clients N --superlink NAME"
    elif "network" in run.config:
        verb = "network"
    if run.forked is not None:
        more += f" --fork SOURCE@{run.forked}"
    if (run.folder / own_code.NAME).exists():
        more += " --own-code"
    return f"fedsash {verb} {shlex.quote(str(run.folder / 'config.toml'))} --out {shlex.quote(out)}{more}"
