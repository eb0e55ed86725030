"""The loss between, around and beside a run's models: lines, planes, surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...basics.errors import check
from ..analysis import landscape as sections
from ..analysis.landscape import Landscape, Relief, Section
from .opened import Opened, Progress, names_of, place, write

KINDS = {1: "surface", 2: "line", 3: "plane"}
"""What goes through so many models."""


@dataclass(frozen=True)
class View:
    """How to look: `points` a direction, on how many `samples` (None: all) of a `split`; `seed` is the directions'."""

    points: int = 21
    split: str = "test"
    samples: int | None = None
    seed: int = 0


def landscape(
    run: Opened,
    models: Sequence[str],
    name: str,
    view: View = View(),
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Survey the surface around one model, the line through two or the plane through three; the analysis, as written.

    An interrupted survey leaves `NAME.npz` beside its place, and goes on from it; at the end that file is gone.
    """
    check(len(models) in KINDS, "--models", ",".join(models), "must be one, two or three models")
    federation = run.federation
    section = _section(run, models, view)
    samples = run.samples(view.split, view.samples)
    look = Landscape(federation.module, federation.training_data, samples, federation.loss, federation.evaluation.batch)
    file = place(run.folder, name, "npz")
    relief = look.over(section, file, progress)
    kind, called = KINDS[len(models)], names_of(models)
    measured = [dict(zip(("loss", "error"), look.at(section.at(spot)), strict=True)) for spot in section.places]
    analysis = {
        "kind": kind,
        "title": f"{run.folder.name}: {kind} {_through(kind, called)}",
        "command": command,
        "split": view.split,
        "samples": len(samples),
        **_described(kind, called, relief),
        "at_models": dict(zip(called, measured, strict=False)),
        **({"at_mean": measured[3]} if kind == "plane" else {}),
        **({"seed": view.seed} if kind == "surface" else {}),
    }
    written = write(run.folder, name, analysis)
    file.unlink()
    return written


def _section(run: Opened, models: Sequence[str], view: View) -> Section:
    vectors = [run.model(name) for name in models]
    if len(vectors) == 1:
        return sections.surface(vectors[0], run.federation.layout, view.seed, view.points)
    if len(vectors) == 2:
        return sections.line(vectors[0], vectors[1], view.points)
    return sections.plane(vectors[0], vectors[1], vectors[2], view.points)


def _described(kind: str, models: Sequence[str], relief: Relief) -> dict[str, Any]:
    """What the numbers belong to, and the numbers; in two dimensions a row for each y."""
    if kind == "line":
        return {"models": models, "beta": relief.axes[0], "loss": relief.loss, "error": relief.error}
    grid = {"x": relief.axes[0], "y": relief.axes[1], "loss": relief.loss.T, "error": relief.error.T}
    if kind == "surface":
        return {"model": models[0], **grid}
    return {**grid, "models": dict(zip(models, relief.places, strict=False)), "mean": relief.places[3]}


def _through(kind: str, models: Sequence[str]) -> str:
    return f"around {models[0]}" if kind == "surface" else f"through {', '.join(models[:-1])} and {models[-1]}"
