"""The loss on lines and planes through a run's models, and on surfaces around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ....basics.layout import Layout
from ....runs.pictures import Picture
from ....settings.errors import check, check_count
from ....tasks import Criterion
from ....tasks.criterion import UNKNOWN
from ..opened import MODELS, OpenRun
from ..study import Found, OnProgress, Rows, Study, names_of, number, option, unseen
from . import sections
from .pictures import of_line, of_plane, of_surface
from .sections import Section
from .survey import Landscape, Relief

THROUGH = {"line": 2, "plane": 3, "surface": 1}
"""The number of models for each kind."""


@dataclass(frozen=True)
class LandscapeStudy(Study):
    """The surface around one model, the line through two models, or the plane through three, on a grid.

    The grid has `points` points in each direction. The loss is measured on `samples` (None: all) of a `split`. `seed`
    draws the directions of a surface. Raises `ValueError` for another number of models, unless each has a `surface`.
    """

    kinds: ClassVar = tuple(THROUGH)
    takes: ClassVar = "each"
    examples: ClassVar = f"""\
  fedsash landscape runs/a --models model,window5                            the line through two models
  fedsash landscape runs/a --models round:10,round:20,round:30 --points 31   the plane through three
  fedsash landscape runs/a runs/b --models model                             surfaces, on common scales
  fedsash landscape runs/a --models model,window5 --surface --samples 1000   a surface around each

Ctrl-C loses nothing: the same command continues.

{MODELS}"""

    models: tuple[str, ...] = field(metadata=option("the models; see below", metavar="A[,B[,C]]"))
    surface: bool = field(default=False, metadata=option("a surface around each model"))
    points: int = field(default=21, metadata=option("points in each direction"))
    split: Literal["test", "train"] = field(default="test", metadata=option("the samples to evaluate on"))
    samples: int | None = field(default=None, metadata=option("at most N of them, or all", metavar="N", none="all"))
    seed: int = field(default=0, metadata=option("for a surface's random directions"))

    def __post_init__(self) -> None:
        right = "must be one, two or three models"
        check(
            self.surface or len(self.models) in THROUGH.values(), "LandscapeStudy.models", ",".join(self.models), right
        )
        valid = 2 <= self.points <= 1000
        check(valid, "LandscapeStudy.points", self.points, "must be at least 2 and at most 1,000 in a direction")
        check_count("LandscapeStudy.seed", self.seed, least=0)

    @property
    def kind(self) -> str:
        return "surface" if self.surface else {count: kind for kind, count in THROUGH.items()}[len(self.models)]

    def parts(self) -> Sequence[Study]:
        return [replace(self, models=(model,), surface=False) for model in self.models] if self.surface else [self]

    def make(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        return self._made(runs, None, progress)

    def go_on(self, runs: Sequence[OpenRun], draft: Path, progress: OnProgress) -> dict[str, Any]:
        return self._made(runs, draft, progress)

    def _made(self, runs: Sequence[OpenRun], draft: Path | None, progress: OnProgress) -> dict[str, Any]:
        (run,) = runs
        federation = run.federation
        samples = run.samples(self.split, self.samples)
        batch = federation.evaluation.batch
        landscape = Landscape(
            federation.module, federation.layout, federation.training_data, samples, federation.goal, batch
        )
        section = self._section(run)
        names = names_of(self.models)
        relief = landscape.over(section, draft, progress)
        measured = [dict(zip(("loss", "error"), landscape.at(section.at(at)), strict=True)) for at in section.places]
        return {
            "kind": self.kind,
            "title": f"{run.folder.name}: {self.kind} {_through(names)}",
            "split": self.split,
            "samples": len(samples),
            "metric": asdict(federation.goal.criterion),
            **_described(names, relief),
            "at_models": dict(zip(names, measured, strict=False)),
            **({"at_mean": measured[3]} if self.kind == "plane" else {}),
            **({"seed": self.seed} if self.kind == "surface" else {}),
        }

    def _section(self, run: OpenRun) -> Section:
        vectors = [run.model(name) for name in self.models]
        if len(vectors) == 1:
            federation = run.federation
            return sections.surface(
                vectors[0], federation.layout, self.points, self.seed, drawn=Layout(federation.module)
            )
        if len(vectors) == 2:
            return sections.line(vectors[0], vectors[1], self.points)
        return sections.plane(vectors[0], vectors[1], vectors[2], self.points, entries=run.federation.layout.trained)

    @staticmethod
    def rows(found: Found) -> Rows:
        kind = found["kind"]
        criterion = Criterion(**found["metric"])
        yield ["in the plane" if kind == "plane" else f"on the {kind}", "loss", criterion.error]
        for name, at in found["at_models"].items():
            yield [name, number(at["loss"]), criterion.text(at["error"], 2)]
        if mean := found.get("at_mean"):
            yield ["their mean", number(mean["loss"]), criterion.text(mean["error"], 2)]
        yield _lowest(found, criterion)

    @staticmethod
    def picture(found: Found) -> Picture:
        if found["kind"] == "line":
            return of_line(found)
        return of_plane(found) if found["kind"] == "plane" else of_surface(found)


def _described(names: Sequence[str], relief: Relief) -> dict[str, Any]:
    """The description of the numbers, and the numbers. In two dimensions there is a row for each y."""
    if len(relief.axes) == 1:
        return {"models": names, "beta": relief.axes[0], "loss": relief.loss, "error": relief.error}
    grid = {"x": relief.axes[0], "y": relief.axes[1], "loss": relief.loss.T, "error": relief.error.T}
    if len(names) == 1:
        return {"model": names[0], **grid}
    return {**grid, "models": dict(zip(names, relief.places, strict=False)), "mean": relief.places[3]}


def _through(names: Sequence[str]) -> str:
    return f"around {names[0]}" if len(names) == 1 else f"through {', '.join(names[:-1])} and {names[-1]}"


def _lowest(found: Found, criterion: Criterion) -> list[str]:
    """The row of the point with the lowest finite loss."""
    loss = np.array(found["loss"], dtype=float)
    error = np.array(found["error"], dtype=float)
    if not np.isfinite(loss).any():
        return ["lowest", UNKNOWN, UNKNOWN]
    index = np.unravel_index(int(np.argmin(np.where(np.isfinite(loss), loss, np.inf))), loss.shape)
    if found["kind"] == "line":
        place = f"beta = {found['beta'][index[0]]:.3g}"
    else:
        place = f"({found['x'][index[1]]:.3g}, {found['y'][index[0]]:.3g})"
    return [f"lowest, at {place}", number(loss[index]), criterion.text(float(error[index]), 2)]
