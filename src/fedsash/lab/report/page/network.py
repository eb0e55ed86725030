"""Runs on a simulated network: time lines, the link and the window, accuracy against time and client trips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..network import CLIENTS, COLOURS, link_use, shown
from .collect import Run
from .figures import Figure, axis, line, model_line, numbers, plain, points, view

SHOWN = 2000
"""A time line has so many intervals."""
HEIGHTS = {"train": 0.85, "upload": 0.6, "failed": 0.85, "download": 0.4, "wait": 0.15}
"""Of a client's row: what it is at can be told without its colour."""
AGAINST = {"time": "simulated seconds", "trips": "client trips"}


def figures(runs: Sequence[Run], notes: list[str]) -> list[Figure]:
    """The pictures of the runs; what a damaged time line hides is told in `notes`."""
    drawn = [run for run in runs if run.timeline is not None and _sound(run, notes)]
    evaluated = [run for run in runs if run.accuracies]
    found = [_accuracy(evaluated)] if evaluated else []
    return found + ([_timelines(drawn), *_link(drawn)] if drawn else [])


def _sound(run: Run, notes: list[str]) -> bool:
    try:
        _timeline(run), _use(run, 0), _window(run, 0)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        notes.append(f"left out: {run.folder / 'timeline.json'}: {error!r}")
        return False
    return True


def _accuracy(runs: Sequence[Run]) -> Figure:
    """Each model's accuracy against simulated time and client trips: a line a model, with several runs a line a run."""
    models = list(dict.fromkeys(model for run in runs for model in run.accuracies))
    views = []
    for key, label in AGAINST.items():
        axes = {"xaxis": axis(label, rangemode="tozero"), "yaxis": axis("accuracy (%)", hoverformat=".2f")}
        if len(runs) == 1:
            averages = [model for model in models if model != "model"]
            lines = [model_line(model, averages) | _points(runs[0], model, key) for model in models]
            views.append(view(f"against {label}", lines, **axes))
            continue
        for model in models:
            having = [run for run in runs if model in run.accuracies]
            lines = [line(run.name, i, **_points(run, model, key)) for i, run in enumerate(having)]
            views.append(view(f"{model} against {label}", lines, **axes))
    caption = "Accuracy on the central test set against the time that the simulated network took, and client trips."
    return Figure("Accuracy over time and trips", caption, views)


def _points(run: Run, model: str, key: str) -> dict[str, Any]:
    known = [(run.network[round][key], 100 * a) for round, a in run.accuracies[model].items() if round in run.network]
    return points((x for x, _ in known), (y for _, y in known))


def _timelines(runs: Sequence[Run]) -> Figure:
    rows = max(1 + max((client for client, *_ in _intervals(run)), default=0) for run in runs)
    caption = (
        f"Who trains, uploads, fails to upload, downloads and waits, from the beginning: at most {CLIENTS} clients and "
        f"{SHOWN:,} of their doings."
    )
    views = [_timeline(run) for run in runs]
    return Figure("Who does what when", caption, views, height=max(220, min(680, 90 + 22 * rows)))


def _intervals(run: Run) -> list[tuple[int, str, float, float]]:
    assert run.timeline is not None
    return shown(run.timeline, SHOWN)


def _timeline(run: Run) -> dict[str, Any]:
    intervals = _intervals(run)
    bars = [_bars(what, intervals) for what in COLOURS]
    clients = 1 + max((client for client, *_ in intervals), default=0)
    y = axis("client", range=[clients - 0.4, -0.6], nticks=min(clients, 10) + 1)
    layout = {"barmode": "overlay", "hovermode": "closest"}
    return view(run.name, [of for of in bars if of["x"]], xaxis=axis("simulated seconds"), yaxis=y, **layout)


def _bars(what: str, intervals: Sequence[tuple[int, str, float, float]]) -> dict[str, Any]:
    """The intervals in which clients do one thing."""
    own = [(client, began, ended) for client, doing, began, ended in intervals if doing == what]
    return {
        "type": "bar",
        "orientation": "h",
        "label": what,
        "name": plain(what),
        "y": [client for client, _, _ in own],
        "base": numbers(began for _, began, _ in own),
        "x": numbers(ended - began for _, began, ended in own),
        "width": HEIGHTS[what],
        "marker": {"color": COLOURS[what], "line": {"width": 0}},
        "hovertemplate": f"client %{{y}}: {what}, %{{x}} s from %{{base}} s<extra></extra>",
    }


def _link(runs: Sequence[Run]) -> list[Figure]:
    """The link's use and, where a run has a window, its size: side by side."""
    use = axis("link in use (%)", range=[0, 105], hoverformat=".0f")
    caption = "The share of the shared link's rate that uploads took, a mean over stretches of time."
    found = [_steps("The link's use", caption, runs, _use, use)]
    if having := [run for run in runs if run.timeline and run.timeline["window"]]:
        caption = "How many clients are in the window, W, over time."
        found.append(_steps("The window's size", caption, having, _window, axis("window W", rangemode="tozero")))
    return found


def _steps(
    title: str, caption: str, runs: Sequence[Run], draw: Callable[[Run, int], dict[str, Any]], y: dict[str, Any]
) -> Figure:
    lines = [draw(run, i) for i, run in enumerate(runs)]
    return Figure(title, caption, [view(title, lines, xaxis=axis("simulated seconds"), yaxis=y)], height=380, half=True)


def _use(run: Run, place: int) -> dict[str, Any]:
    assert run.timeline is not None
    edges, use = link_use(run.timeline)
    shares = [100 * share for share in use]
    return _stairs(run, place, edges, [*shares, *shares[-1:]])


def _window(run: Run, place: int) -> dict[str, Any]:
    assert run.timeline is not None
    known = run.timeline["window"]
    ends = [(run.timeline["until"], known[-1][1])] if known else []
    return _stairs(run, place, *([row[i] for row in [*known, *ends]] for i in (0, 1)))


def _stairs(run: Run, place: int, times: Sequence[float], values: Sequence[float]) -> dict[str, Any]:
    """A line that keeps each value until the next time."""
    steps = line(run.name, place, **points(times, values))
    return steps | {"mode": "lines", "line": steps["line"] | {"shape": "hv"}}
