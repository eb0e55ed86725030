"""Means over seeds: a table with intervals, and the mean curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from ....evaluation import mean_or_none
from ....runs.pictures import Picture
from ....settings.errors import RunError
from ..collect import CollectedRun, by_metric
from ..comparison import Row, by_decided, compare, labels_of
from .curves import common_value, curves


def comparable(runs: Sequence[CollectedRun]) -> list[CollectedRun]:
    """The runs that have a part in means over seeds."""
    return [run for run in runs if run.repeatable and run.finished]


def comparisons(runs: Sequence[CollectedRun], warnings: list[str]) -> dict[str, list[list[Row]]]:
    """The rows of `compare` by what they are `of`: first "", the metric that decides, then each split's worst tenth.

    Rows of different metrics or splits are in lists of their own. Empty if no two runs differ only in their seed. If
    runs can't be compared, `warnings` gets the reason.
    """
    runs = comparable(runs)
    numbers = [""]  # the metric that decides
    splits = [list(run.summary["over_clients"]) for run in runs]
    if splits and splits.count(splits[0]) == len(splits):
        numbers += [f"{split}/worst_tenth" for split in splits[0]]
    compared = {}
    try:
        for number in numbers:
            compared[number] = by_decided(compare(runs, of=number))
    except RunError as error:
        warnings.append(f"seeds are not compared: {error}")
        return {}
    several = any(len(row.values) > 1 for rows in compared[""] for row in rows)
    return compared if several else {}


def means(runs: Sequence[CollectedRun]) -> list[CollectedRun]:
    """One run for each setting, whose curves are the means over the seeds."""
    settings: dict[str, list[CollectedRun]] = {}
    for run, labels in zip(runs, labels_of(runs), strict=True):
        if run.curves:
            settings.setdefault(labels_text(labels), []).append(run)
    mean_runs = []
    for name, of_setting in settings.items():
        if len(settings) == 1 and len(of_setting) > 1:
            name = f"{len(of_setting)} seeds"
        mean_runs.append(_mean(name, of_setting))
    return mean_runs


def pictures(runs: Sequence[CollectedRun]) -> list[Picture]:
    """The mean curves over the seeds of each setting, a picture for each metric that decides."""
    drawn = []
    for group in by_metric(means(comparable(runs))):
        picture = curves(group, each="setting")
        if picture is not None:
            title = f"{picture.title}, mean over seeds"
            drawn.append(replace(picture, title=title, caption=f"Means over seeds. {picture.caption}"))
    return drawn


def labels_text(labels: dict[str, str]) -> str:
    """The labels of a setting in words; of a run outside of a sweep its name."""
    if list(labels) == ["run"]:
        return labels["run"]
    return ", ".join(f"{axis} {label}" for axis, label in labels.items())


def _mean(name: str, runs: Sequence[CollectedRun]) -> CollectedRun:
    """One run in place of several: its curves are their means, at the rounds that all of them have."""
    first = runs[0].curves
    models = {}
    summaries = {}
    for model in first.models:
        models[model] = _mean_curve([run.curves.models.get(model, {}) for run in runs])
        last_means = [run.summary["models"].get(model, {}).get("last_mean") for run in runs]
        summaries[model] = {"last_mean": mean_or_none(last_means)}
    return replace(
        runs[0],
        name=name,
        curves=replace(first, models=models),
        summary={"models": summaries},
        broadcast_start=common_value(run.broadcast_start for run in runs),  # an adaptive broadcast begins by itself
    )


def _mean_curve(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean of curves, which are values by round, at the rounds that all of them have."""
    mean = {}
    for round in curves[0]:
        values = [curve[round] for curve in curves if round in curve]
        if len(values) == len(curves):
            mean[round] = fmean(values)
    return mean
