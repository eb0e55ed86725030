"""What a sweep says before it trains: what its runs will not reach, each line once, and which runs are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...runs.warned import beyond, rate_notes
from ...settings.errors import some
from . import index
from .axes import PlannedRun, Sweep, short


def beyond_ends(sweep: Sweep) -> Iterator[str]:
    """The lines of `beyond` and `rate_notes` about the sweep's runs, after the labels of those that a line concerns."""
    found: dict[str, list[PlannedRun]] = {}
    for run in sweep.runs:
        experiment = run.experiment
        rounds = run.experiment.rounds
        unreached = beyond(experiment, experiment.checkpoint, experiment.trajectory, rounds)
        for line in (*unreached, *rate_notes(experiment.local, getattr(experiment, "scheduler", None), rounds)):
            found.setdefault(line, []).append(run)
    for line, runs in found.items():
        yield line if len(runs) == len(sweep.runs) else f"{_which(sweep, runs)}: {line}"


def same(sweep: Sweep) -> Iterator[str]:
    """A line for each run that is the same experiment as an earlier one, as where a later axis sets the same key."""
    first: dict[str, PlannedRun] = {}
    for run in sweep.runs:
        before = first.setdefault(json.dumps(run.experiment.table(), sort_keys=True, default=str), run)
        if before is not run:
            yield f"{run.name} is the same experiment as {before.name}"


def others(sweep: Sweep, out: Path) -> Iterator[str]:
    """A line if the folder holds runs over the same axes that the sweep lacks, as from before its file was edited."""
    there = index.read(out) if (out / index.NAME).exists() else {"axes": {}, "runs": {}}
    names = [name for name in there["runs"] if name not in {run.name for run in sweep.runs}]
    if names and [*there["axes"]] == [*sweep.axes]:
        right = "compare shows them, too: take another --out, or remove them"
        yield f"{out} also holds runs that this file does not have, {some(names, 3)}; {right}"


def _which(sweep: Sweep, runs: Sequence[PlannedRun]) -> str:
    """Some runs of a sweep: by the labels that they have and no others, or else the first and how many more."""
    first = runs[0].labels
    common = {axis: first[axis] for axis in sweep.axes if all(run.labels[axis] == first[axis] for run in runs)}
    common = {axis: label for axis, label in common.items() if len(sweep.axes[axis]) > 1}
    if len(runs) == sum(common.items() <= run.labels.items() for run in sweep.runs):
        return ", ".join(f"{short(axis)}={label}" for axis, label in common.items())
    return f"{runs[0].name} and {len(runs) - 1} more"
