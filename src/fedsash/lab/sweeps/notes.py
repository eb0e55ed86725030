"""What a sweep says before it trains: what its runs will not reach, each line once, and which runs are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...runs.warned import beyond, rate_notes
from ...settings.errors import some
from ..config import Experiment
from . import index
from .axes import PlannedRun, Sweep, short


def beyond_ends(sweep: Sweep) -> Iterator[str]:
    """The lines of `beyond` and `rate_notes` about the sweep's runs, after the labels of those that a line concerns."""
    concerned: dict[str, list[PlannedRun]] = {}
    for run in sweep.runs:
        for line in end_lines(run.experiment):
            concerned.setdefault(line, []).append(run)
    for line, runs in concerned.items():
        if len(runs) == len(sweep.runs):
            yield line
        else:
            yield f"{_named(sweep, runs)}: {line}"


def end_lines(experiment: Experiment) -> Iterator[str]:
    """The lines of `beyond` and `rate_notes` about one experiment."""
    yield from beyond(experiment, experiment.checkpoint, experiment.trajectory, experiment.rounds)
    yield from rate_notes(experiment.local, getattr(experiment, "scheduler", None), experiment.rounds)


def same(sweep: Sweep) -> Iterator[str]:
    """A line for each run that is the same experiment as an earlier one, as where a later axis sets the same key."""
    first: dict[str, PlannedRun] = {}
    for run in sweep.runs:
        settings = json.dumps(run.experiment.table(), sort_keys=True, default=str)
        if settings in first:
            yield f"{run.name} is the same experiment as {first[settings].name}"
        else:
            first[settings] = run


def others(sweep: Sweep, out: Path) -> Iterator[str]:
    """A line if the folder holds runs over the same axes that the sweep lacks, as from before its file was edited."""
    if not (out / index.NAME).exists():
        return
    saved = index.read(out)
    names_in_file = {run.name for run in sweep.runs}
    names = [name for name in saved["runs"] if name not in names_in_file]
    if names and list(saved["axes"]) == list(sweep.axes):
        advice = "compare shows them, too: take another --out, or remove them"
        yield f"{out} also holds runs that this file does not have, {some(names, 3)}; {advice}"


def _named(sweep: Sweep, runs: Sequence[PlannedRun]) -> str:
    """Some runs of a sweep: by the labels that they have and no others, or else the first and how many more."""
    common = {}
    for axis, labels in sweep.axes.items():
        shared = {run.labels[axis] for run in runs}
        if len(labels) > 1 and len(shared) == 1:
            common[axis] = runs[0].labels[axis]
    alike = [run for run in sweep.runs if common.items() <= run.labels.items()]
    if len(alike) == len(runs):
        return ", ".join(f"{short(axis)}={label}" for axis, label in common.items())
    return f"{runs[0].name} and {len(runs) - 1} more"
