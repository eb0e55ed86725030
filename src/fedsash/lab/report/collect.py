"""The content of folders of runs and sweeps, as plain data."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...evaluation import NOT_EVALUATED, Curves, Evaluation, History, NetworkLoad, Problems, last_rounds, mean_or_none
from ...runs.client_results import CLIENTS
from ...runs.records import Records
from ...runs.summaries import goal_of, over, run_table, stuck_text, summarise
from ...settings.errors import RunError, one_line, some
from ...system.files import table
from ...system.paths import inside, plain_file
from ...tasks import Criterion
from ...vector.saved import StateError, manifest, place, saved_rounds
from ..sweeps import index


@dataclass(frozen=True)
class Analysis:
    """One file of `analyses/`, or of a reproduction's `tables/`; `source` is the run or sweep that it belongs to."""

    source: str
    file: Path
    content: dict[str, Any]

    @property
    def title(self) -> str:
        return str(self.content.get("title") or self.file.stem)

    @property
    def kind(self) -> str:
        return str(self.content.get("kind"))


@dataclass(frozen=True)
class CollectedRun:
    """All that the page shows of one run."""

    name: str
    folder: Path
    config: dict[str, Any]
    """its settings; empty if the run did not write them"""
    config_text: str
    curves: Curves
    summary: dict[str, Any]
    """the content of summary.json, or what can be worked out from the metrics so far"""
    evaluation: Evaluation
    ended: bool
    """whether the summary is of the last recorded round"""
    labels: dict[str, str] = field(default_factory=dict)
    """its labels on the axes of its sweep"""
    partition: dict[str, Any] | None = None
    clients: dict[str, Any] | None = None
    """the last results of each client, if clients have scored models"""
    network: dict[int, NetworkLoad] = field(default_factory=dict)
    """the numbers of the simulated network, by round"""
    timeline: dict[str, Any] | None = None
    """the time line, which a run on a simulated network writes at its end"""
    problems: dict[int, Problems] = field(default_factory=dict)
    """missing clients, refused uploads and skipped rounds, by round"""
    served: bool = False
    """whether its clients were on nodes"""
    last_means: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """the metric that decides as a mean over the last evaluations, by split and model"""
    made_of: dict[str, str] = field(default_factory=dict)
    """the parts of a federation that Python made, from the newest saved state: `config` does not have them"""
    samples: str = ""
    """a checksum of the data that it was trained on, from the newest saved state; empty if it is not known"""
    forked: int | None = None
    """the round at which it was forked by hand from another run, whose settings `config` does not have"""
    broadcast_start: int | None = None
    """the round after which clients receive an average"""
    wanted: int | None = None
    """the number of rounds that it should have at its end, if known"""

    @property
    def settings(self) -> dict[str, Any]:
        """All that is known of how it was trained."""
        settings = self.made_of | self.config
        if self.forked is not None:
            settings["forked"] = f"at round {self.forked}"
        return settings

    @property
    def rounds(self) -> int:
        return int(self.summary["rounds"])

    @property
    def repeatable(self) -> bool:
        """Whether its settings say how to train it again.

        Those of a run that was made in Python do not, and a fork of a network's run is made in Python only.
        """
        forked_network = self.forked is not None and "network" in self.config
        return bool(self.config) and self.config.get("built_by") != "" and not forked_network

    @property
    def finished(self) -> bool:
        return self.ended and over(self.summary, self.wanted or 0)

    @property
    def note(self) -> str:
        """A remark on a run that is stuck, ended early, is not finished or has no evaluation; empty for any other."""
        since = self.summary.get("stuck")
        if since:
            return stuck_text(since)
        rounds = str(self.rounds)
        if self.wanted:
            rounds += f" of {self.wanted}"
        reason = self.summary.get("ended_early")
        if reason:
            return f"ended after round {rounds}: {reason}"
        if not self.finished:
            return f"not finished: running, or interrupted, after round {rounds}; numbers are those so far"
        if not self.curves:
            return NOT_EVALUATED
        return ""


def by_metric(runs: Sequence[CollectedRun]) -> list[list[CollectedRun]]:
    """The runs in groups, each of those that one metric on one split decides."""
    groups: dict[str, list[CollectedRun]] = {}
    for run in runs:
        groups.setdefault(run.curves.title, []).append(run)
    return list(groups.values())


@dataclass(frozen=True)
class CollectedSweep:
    """A sweep: its axes with their labels, and the runs that failed, with the reason."""

    title: str
    folder: Path
    axes: dict[str, list[str]]
    failed: dict[str, str]


@dataclass
class Collection:
    """Everything that the page shows. `notes` are lines on missing runs, `damaged` on files that can't be read."""

    runs: list[CollectedRun] = field(default_factory=list)
    sweeps: list[CollectedSweep] = field(default_factory=list)
    analyses: list[Analysis] = field(default_factory=list)
    tables: list[Analysis] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def collect(folders: Sequence[Path | str]) -> Collection:
    """The runs and sweeps in these folders. With several sweeps, runs have another axis `sweep`, with its folder.

    A folder that is neither stands for the runs and sweeps in it. Files are left out, since a shell's `runs/*` names
    them, too. Raises `RunError` for a folder without a run, and if a file of a run that was named is damaged. Damaged
    runs of a sweep or in a folder, analyses and tables are left out, with a note.
    """
    collection = Collection()
    paths: list[Path] = []
    inner: set[Path] = set()
    for folder in folders:
        paths_inside = _runs_inside(Path(folder))
        paths += paths_inside
        if paths_inside != [Path(folder)]:
            inner.update(paths_inside)
    if not paths:
        raise RunError(f"{some([str(folder) for folder in folders])}: no folder of a run or a sweep")
    sweeps = [folder for folder in paths if _is_sweep(folder)]
    for folder, name in zip(paths, _names(paths), strict=True):
        try:
            if folder in sweeps:
                prefix = name if len(paths) > 1 else ""
                labels = {"sweep": name} if len(sweeps) > 1 else {}
                _add_sweep(folder, prefix, labels, collection)
            else:
                _add_run(folder, name, {}, collection)
        except RunError as error:
            if folder not in inner:
                raise
            collection.damaged.append(f"{name} is left out: {error}")
    return collection


def _is_sweep(folder: Path) -> bool:
    return (folder / index.NAME).exists()


def _is_run_or_sweep(folder: Path) -> bool:
    return _is_sweep(folder) or Records(folder).begun


def _runs_inside(path: Path) -> list[Path]:
    """The path itself if it is a run's or a sweep's folder, else the folders of runs and sweeps in it; none of a file.

    Raises `RunError` for a folder that has none, and for one that does not exist.
    """
    if path.is_file():
        return []
    if _is_run_or_sweep(path):
        return [path]
    folders = []
    if path.is_dir():
        folders = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _is_run_or_sweep(folder)]
    if not folders:
        line = f"{path} is neither a run nor a sweep: it holds no metrics.jsonl and no sweep.json"
        raise RunError(f"{line}, and no folder in it does")
    return folders


def _names(folders: Sequence[Path]) -> list[str]:
    """The last parts of the folders' paths, as many as are needed to distinguish them."""
    paths = [folder.resolve().parts for folder in folders]
    longest = max(map(len, paths), default=0)
    for count in range(1, longest + 1):
        names = ["/".join(parts[-count:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    raise RunError("a folder is given twice")


def _add_sweep(folder: Path, prefix: str, more_labels: dict[str, str], collection: Collection) -> None:
    """Add a sweep with all of its runs, tables and analyses; names begin with the `prefix`, if there is one."""
    content = index.read(folder)
    failed = content["failed"]
    axes = {axis: [str(label) for label in labels] for axis, labels in content["axes"].items()}
    title = str(content.get("title") or folder.resolve().name)
    reasons = {run: str(reason) for run, reason in failed.items()}
    collection.sweeps.append(CollectedSweep(title, folder, axes, reasons))
    not_begun: list[str] = []
    for run, run_labels in content["runs"].items():
        labels = more_labels | {axis: str(label) for axis, label in run_labels.items()}
        name = f"{prefix}/{run}" if prefix else run
        run_folder = inside(folder / "runs", run)
        records = Records(run_folder)
        if not records.begun:
            if (run_folder / "summary.json").exists():
                collection.damaged.append(f"run {name} is left out: {records.path} is missing")
            elif run not in failed:
                not_begun.append(run)
            continue
        try:
            _add_run(run_folder, name, labels, collection, content["rounds"].get(run))
        except RunError as error:
            collection.damaged.append(f"run {name} is left out: {error}")
    not_begun += content["others"]
    if not_begun:
        count = len(content["runs"]) + len(content["others"])
        line = f"{len(not_begun)} of {count} runs have not begun: {some(not_begun, 4)}"
        collection.notes.append(f"{prefix}: {line}" if prefix else line)
    source = prefix or title
    collection.tables += _results(folder / "tables", source, collection.damaged)
    collection.analyses += _results(folder / "analyses", source, collection.damaged)


def _add_run(
    folder: Path, name: str, labels: dict[str, str], collection: Collection, wanted: int | None = None
) -> None:
    """Add a run, finished or not, with its analyses; `wanted` are the rounds that its sweep asks for."""
    history = Records(folder).load()
    criterion, evaluation = goal_of(folder)
    text, config = _config(folder / "config.toml")
    last = max((record.round for record in history), default=0)
    summary = run_table(folder / "summary.json") or {}
    ended = _whole(summary) and summary["rounds"] >= last
    if not ended:
        summary = summarise(history, evaluation, criterion) | {"rounds": last, "stuck": history.stuck(last)}
    summary["over_clients"] = history.over_clients(evaluation.last)
    partition = run_table(folder / "partition.json")
    newest = _newest(folder / "state")
    forked = newest.get("forked")
    if labels:  # a sweep forks runs from rounds that they share
        forked = None
    run = CollectedRun(
        name=name,
        folder=folder,
        config=config,
        config_text=text,
        curves=history.curves(criterion),
        summary=summary,
        evaluation=evaluation,
        ended=ended,
        labels=labels,
        partition=partition,
        clients=run_table(folder / CLIENTS),
        network=history.network,
        timeline=run_table(folder / "timeline.json"),
        problems=history.problems,
        served=run_table(folder / "engine.json") == {} and partition is None,
        last_means=_last_means(history, criterion, evaluation.last),
        made_of=_made_of(newest) if "built_by" in config else {},
        samples=newest.get("fingerprint", {}).get("data", ""),
        forked=forked,
        broadcast_start=_broadcast_start(config, newest, forked or 0),
        wanted=wanted or config.get("rounds"),
    )
    collection.runs.append(run)
    collection.analyses += _results(folder / "analyses", name, collection.damaged)


def _last_means(history: History, criterion: Criterion, last: int) -> dict[str, dict[str, float | None]]:
    """Each model's mean over the last evaluations, by split; None unless it has a value at each of them."""
    means: dict[str, dict[str, float | None]] = {}
    for split in history.splits:
        models = history.curves(criterion, split).models
        rounds = last_rounds(models, last)
        means[split] = {}
        for model, points in models.items():
            means[split][model] = mean_or_none([points.get(round) for round in rounds])
    return means


def _newest(states: Path) -> dict[str, Any]:
    """What the newest saved state of a run says beside its tensors; nothing if it can't be read."""
    with suppress(StateError):  # the page can do without
        rounds = saved_rounds(states)
        if rounds:
            return manifest(place(states, rounds[-1]))
    return {}


def _broadcast_start(config: dict[str, Any], newest: dict[str, Any], forked: int) -> int | None:
    """The round after which clients receive an average: as it was chosen, or else as it is set. None without one."""
    start = None
    broadcast = config.get("broadcast")
    if isinstance(broadcast, dict):
        start = broadcast.get("start")
    choice = newest.get("choice") or {}
    start = choice.get("start", start)
    if not isinstance(start, int):
        return None
    return max(start, forked)


def _made_of(newest: dict[str, Any]) -> dict[str, str]:
    """The parts of a federation as its saved state has them, without the modules of one's own classes.

    What stands at its default is left out.
    """
    parts: dict[str, str] = newest.get("fingerprint", {})
    made_of = {}
    for name, text in parts.items():
        if text != "None" and name != "defaults":
            made_of[name] = re.sub(r"\b(?:\w+\.)+(?=[A-Z]\w*\()", "", text)
    return made_of


def _whole(summary: dict[str, Any]) -> bool:
    """Whether a summary is complete."""
    models = summary.get("models")
    rounds = summary.get("rounds")
    if not isinstance(rounds, int) or not isinstance(summary.get("metric"), dict) or "averaged" not in summary:
        return False
    if not isinstance(models, dict):
        return True
    return all("last_mean" in model for model in models.values())


def _config(file: Path) -> tuple[str, dict[str, Any]]:
    """The text of a run's settings, and their content; both are empty without the file."""
    if not file.exists():
        return "", {}
    text = plain_file(file).read_bytes().decode(errors="replace")
    try:
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file}: {one_line(error)}") from error


def _results(folder: Path, source: str, damaged: list[str]) -> Iterator[Analysis]:
    """The files of a folder of analyses or tables. `damaged` gets a line for each file that can't be read."""
    for file in sorted(folder.glob("*.json"), key=lambda file: file.stem):
        try:
            yield Analysis(source, file, table(file))
        except RunError as error:
            damaged.append(f"left out: {error}")
