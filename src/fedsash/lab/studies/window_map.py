"""The map of a run's windows: every window by its size and by the round after which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...averages.afterwards import Triangle, by_size
from ...runs.pictures import Axis, Field, Line, Panel, Picture, Points, Rule, look
from ...runs.pictures.picture import Layer
from ...runs.pictures.scales import INNER, LEVELS
from ...runs.pictures.styles import QUIET
from ...runs.records import Records
from ...settings.errors import check, check_count
from ...tasks import Criterion
from ...vector.arrays import Floats
from .afterwards import Afterwards
from .opened import OpenRun
from .study import Findings, OnProgress, Rows, Study, option, unseen


@dataclass(frozen=True)
class MapStudy(Study):
    """The metric that decides of every window that begins and ends at a saved sum.

    n sums give n (n + 1) / 2 windows. `every` takes only the sums of rounds that are a multiple of it (None: all).
    Raises `ValueError` if there are no such sums.
    """

    kinds: ClassVar = ("map",)
    examples: ClassVar = """\
  fedsash run experiment.toml --out runs/a --set trajectory.every=10    keeps the sum of its models, every 10 rounds
  fedsash map runs/a                     every window of every size that ends after one of these rounds
  fedsash map runs/a --every 50          fewer of them: 6 sums make 21 windows, 30 sums 465
  fedsash report runs/a --out a.html     a page with a slider over the windows and their ends
"""

    every: int | None = field(
        default=None,
        metadata=option("only windows between rounds that are a multiple of N (default: all there are)", metavar="N"),
    )

    def __post_init__(self) -> None:
        if self.every is not None:
            check_count("MapStudy.every", self.every)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        all_counts = Afterwards(run).counts
        criterion = run.federation.goal.criterion
        every = self.every or 1
        counts = {round: count for round, count in all_counts.items() if round % every == 0}
        triangle = Triangle.of(counts)
        _, *saved = all_counts  # the first one is of no models
        check(bool(triangle.ends), "every", self.every, f"the sums are of the rounds {saved[0]} to {saved[-1]}")
        values: list[list[float]] = []
        split = ""
        done = 0
        for end, sizes_at_end in zip(triangle.ends, triangle.sizes, strict=True):
            average = Afterwards(run, end)
            scores = [average.judge(w).metrics for _, w in average.windows(sizes_at_end)]
            values.append([score[criterion.name] for score in scores])
            split = scores[0].split
            done += len(scores)
            progress(done, len(triangle))
        models = Records(run.folder).load().curves(criterion, split).models.get("model", {})
        return {
            "title": f"{run.folder.name}: every window",
            "split": split,
            "metric": asdict(criterion),
            "ends": triangle.ends,
            "sizes": triangle.sizes,
            "value": values,
            "model": [models.get(end) for end in triangle.ends],
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        criterion = Criterion(**findings["metric"])
        yield ["ends after\nround", "windows", f"best on\n{findings['split']}", f"its\n{criterion.name}", "the model"]
        for place, end in enumerate(findings["ends"]):
            sizes = findings["sizes"][place]
            model = findings["model"][place]
            values = dict(zip(sizes, findings["value"][place], strict=True))
            size = criterion.best(values)
            best = None if size is None else values[size]
            yield [str(end), str(len(sizes)), str(size or "-"), criterion.text(best, 2), criterion.text(model, 2)]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """All windows as a map, and the values of the best window at the last end by the round after which it ends."""
        criterion = Criterion(**findings["metric"])
        ends = findings["ends"]
        sizes, grid = grid_of(findings)
        label = criterion.label(findings["split"])
        last = ends[-1]
        size = best_at_the_end(findings)
        margin = 0.02 * (last - ends[0]) or 0.5  # the mark at the last end is whole
        end = Axis("round after which the window ends", ends[0] - margin, last + margin)
        height = Axis("W, the number of models")
        values = Field(label, ends, sizes, grid, levels=_levels(grid, criterion))
        of_model = criterion.drawn(findings["model"])
        lines: list[Layer] = [
            Rule(last, "x"),
            Line("the mean of the last W models", ends, grid[sizes.index(size)], look(0)),
            Line("model", ends, of_model, QUIET),
        ]
        panels = [Panel("by the end", end, Axis(label, *_limits(grid, of_model)), lines, width=6, height=4.4)]
        if min(len(ends), len(sizes)) > 1:  # contours need a plane
            marked: list[Layer] = [values, Points([""], [last], [size])]
            panels.insert(0, Panel("every window", end, height, marked, width=6, height=4.4))
        caption = (
            "Every window, by its number of models W and the round after which it ends; the curve is for "
            f"W = {size}, the best at the last end on these very samples."
        )
        return Picture(findings["title"], panels, columns=len(panels), caption=caption)


def grid_of(findings: Findings) -> tuple[list[int], list[list[float | None]]]:
    """All sizes, ascending, and the values `[size][end]` as they are drawn. None where there is no such window."""
    criterion = Criterion(**findings["metric"])
    sizes, rows = by_size(findings["sizes"], findings["value"])
    return sizes, [criterion.drawn(row) for row in rows]


def best_at_the_end(findings: Findings) -> int:
    """The size of the best window that ends at the last end; without a defined value the smallest size."""
    values = dict(zip(findings["sizes"][-1], findings["value"][-1], strict=True))
    criterion = Criterion(**findings["metric"])
    size: int | None = criterion.best(values)
    if size is None:
        return int(findings["sizes"][-1][0])
    return size


def _levels(grid: Sequence[Sequence[float | None]], criterion: Criterion) -> list[float]:
    """Even levels from the best value down to that which `INNER` of all windows reach."""
    values = _finite(grid)
    if criterion.better == "higher":
        low = float(np.quantile(values, 1 - INNER))
        high = float(values.max())
    else:
        low = float(values.min())
        high = float(np.quantile(values, INNER))
    least_span = 1e-6 * max(1.0, abs(low))  # levels ascend strictly
    levels: list[float] = np.linspace(low, max(high, low + least_span), LEVELS + 1).tolist()
    return levels


def _limits(grid: Sequence[Sequence[float | None]], of_model: Sequence[float | None]) -> tuple[float, float]:
    """The ends of the axis of values: beyond those of all windows and of the model, whatever W is chosen."""
    values = _finite([*grid, of_model])
    low = float(values.min())
    high = float(values.max())
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


def _finite(grid: Sequence[Sequence[float | None]]) -> Floats:
    """All numbers of the rows that are finite; a zero if there are none."""
    values: Floats = np.concatenate([np.array(row, dtype=np.float64) for row in grid])  # an unknown value is NaN
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return np.zeros(1)
    return values
