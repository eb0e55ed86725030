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
    rows_by_number: dict[str, list[list[Row]]] = {}
    try:
        for number in ["", *_worst_tenths(runs)]:
            rows_by_number[number] = by_decided(compare(runs, of=number))
    except RunError as error:
        warnings.append(f"seeds are not compared: {error}")
        return {}
    for rows in rows_by_number[""]:
        if any(len(row.values) > 1 for row in rows):
            return rows_by_number
    return {}


def _worst_tenths(runs: Sequence[CollectedRun]) -> list[str]:
    """The worst tenth of the clients on each split, as `compare` names it, if all runs have the same splits."""
    if not runs:
        return []
    splits = list(runs[0].summary["over_clients"])
    for run in runs:
        if list(run.summary["over_clients"]) != splits:
            return []
    return [f"{split}/worst_tenth" for split in splits]


def means(runs: Sequence[CollectedRun]) -> list[CollectedRun]:
    """One run for each setting, whose curves are the means over the seeds."""
    runs_by_setting: dict[str, list[CollectedRun]] = {}
    for run, labels in zip(runs, labels_of(runs), strict=True):
        if run.curves:
            runs_by_setting.setdefault(labels_text(labels), []).append(run)
    mean_runs = []
    for setting, runs_of_setting in runs_by_setting.items():
        name = setting
        if len(runs_by_setting) == 1 and len(runs_of_setting) > 1:
            name = f"{len(runs_of_setting)} seeds"
        mean_runs.append(_mean(name, runs_of_setting))
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
    first = runs[0]
    curves_of_models = {}
    summaries_of_models = {}
    for model in first.curves.models:
        curves_of_models[model] = _mean_curve([run.curves.models.get(model, {}) for run in runs])
        summaries_of_models[model] = {"last_mean": mean_or_none(_last_means(model, runs))}
    # An adaptive broadcast begins by itself, at another round with each seed.
    broadcast_start = common_value(run.broadcast_start for run in runs)
    return replace(
        first,
        name=name,
        curves=replace(first.curves, models=curves_of_models),
        summary={"models": summaries_of_models},
        broadcast_start=broadcast_start,
    )


def _last_means(model: str, runs: Sequence[CollectedRun]) -> list[float | None]:
    """A model's mean over the last evaluations in each run; None in one that has no such model."""
    values = []
    for run in runs:
        summary = run.summary["models"].get(model, {})
        values.append(summary.get("last_mean"))
    return values


def _mean_curve(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean of curves, which are values by round, at the rounds that all of them have."""
    mean = {}
    for round in curves[0]:
        if all(round in curve for curve in curves):
            mean[round] = fmean(curve[round] for curve in curves)
    return mean
