"""Accuracy against rounds: every model of every run, raw and smoothed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .collect import Run
from .figures import Figure, axis, line, model_line, view
from .smoothing import ORDER, WINDOW, smooth

MOST = 200_000
"""Points on the page; with more, every curve is thinned."""


def curves(runs: Sequence[Run]) -> Figure | None:
    """The accuracies on the test set, in per cent; None if no run has any.

    With several runs there is a view for each model, with a line a run, and one for each run, with a line a model.
    """
    drawn = [run for run in runs if run.accuracies]
    if not drawn:
        return None
    points = sum(len(points) for run in drawn for points in run.accuracies.values())
    step = math.ceil(points / MOST)
    lines = [(i, model, of_model) for i, run in enumerate(drawn) for model, of_model in run.accuracies.items()]
    series = {_id(i, model): _series(of_model, step) for i, model, of_model in lines}
    models = list(dict.fromkeys(model for run in drawn for model in run.accuracies))
    views = [_run_view(i, run, models, several=len(drawn) > 1) for i, run in enumerate(drawn)]
    if len(drawn) > 1:
        preferred = [*(model for model in models if model != "model"), *(model for model in models if model == "model")]
        views = [_model_view(model, drawn) for model in preferred] + views
    thinned = f" One evaluation in {step} is drawn." if step > 1 else ""
    caption = (
        "Accuracy on the central test set after each evaluated round. The smoothed lines are those of a Savitzky-Golay "
        f"filter (window {WINDOW} evaluations, order {ORDER}); the numbers in the tables are never smoothed.{thinned}"
    )
    return Figure("Accuracy over the rounds", caption, views, series, height=460)


def _id(run: int, model: str) -> str:
    return f"{run}:{model}"


def _series(points: dict[int, float], step: int) -> dict[str, Any]:
    accuracies = list(points.values())
    kept = {"x": list(points)[::step], "y": _percent(accuracies)[::step]}
    smoothed = _percent(smooth(accuracies), digits=2)[::step]
    return kept | {"smooth": smoothed}


def _percent(shares: Sequence[float], digits: int = 4) -> list[float | None]:
    return [round(100 * share, digits) if math.isfinite(share) else None for share in shares]


def _model_view(model: str, runs: Sequence[Run]) -> dict[str, Any]:
    chosen = [(i, run) for i, run in enumerate(runs) if model in run.accuracies]
    traces = [line(run.name, place, series=_id(i, model)) for place, (i, run) in enumerate(chosen)]
    return view(f"{model}, every run", traces, **_layout([run for _, run in chosen]))


def _run_view(i: int, run: Run, models: Sequence[str], several: bool) -> dict[str, Any]:
    """A run's models, each in the style that it has in all runs."""
    averages = [model for model in models if model != "model"]
    traces = [model_line(model, averages) | {"series": _id(i, model)} for model in run.accuracies]
    return view(f"{run.name}, every model" if several else run.name, traces, **_layout([run]))


def _layout(runs: Sequence[Run]) -> dict[str, Any]:
    """The axes; the target and the beginning of the broadcast where all runs share them."""
    shapes, notes = [], []
    targets = {run.evaluation.target if run.config else None for run in runs}
    starts = {_broadcast_start(run) for run in runs}
    if len(targets) == 1 and (target := targets.pop()):
        level = {"y0": 100 * target, "y1": 100 * target, "yref": "y", "x0": 0, "x1": 1, "xref": "paper"}
        shapes.append({"type": "line", "line": {"color": "#555", "width": 1, "dash": "dot"}} | level)
        text = {"text": f"target {100 * target:g} %", "x": 0, "xref": "paper", "y": 100 * target, "xanchor": "left"}
        notes.append({"showarrow": False, "yanchor": "bottom", "font": {"size": 12}} | text)
    if len(starts) == 1 and (start := starts.pop()):
        moment = {"x0": start, "x1": start, "xref": "x", "y0": 0, "y1": 1, "yref": "paper"}
        shapes.append({"type": "line", "line": {"color": "#999", "width": 1}} | moment)
        text = {"text": f"broadcasting from round {start}", "x": start, "y": 0, "yref": "paper", "xanchor": "left"}
        notes.append({"showarrow": False, "yanchor": "bottom", "font": {"size": 12}} | text)
    y = axis("accuracy (%)", hoverformat=".2f")
    rounds = [round for run in runs for points in run.accuracies.values() for round in points]
    first, last = min(rounds), max(rounds)
    margin = 0.02 * (last - first) or 1
    x = axis("round", unifiedhovertitle={"text": "round %{x}"}, range=[first - margin, last + margin])
    return {"xaxis": x, "yaxis": y, "shapes": shapes, "annotations": notes}


def _broadcast_start(run: Run) -> int | None:
    """After how many rounds an average takes the model's place, where the configuration says so."""
    broadcast = run.config.get("broadcast")
    start = broadcast.get("start") if isinstance(broadcast, dict) else None
    return start if isinstance(start, int) else None
