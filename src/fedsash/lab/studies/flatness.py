"""The flatness of the loss around a model: the largest eigenvalues of its Hessian, and the sharpness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ...data.samples import Samples
from ...evaluation import Curvature
from ...runs.pictures import Axis, Bars, Panel, Picture
from ...runs.pictures.styles import of_bars
from ...server.federation import Federation
from ...settings.errors import check
from ...vector.arrays import Floats
from ...vector.randomness import Purpose, generator
from .opened import MODELS, OpenRun
from .study import Findings, OnProgress, Rows, Study, names_of, number, option, split_in_words, unseen

FEWEST = 4
"""There is room for so many groups of bars at least."""
STEPS = 100
TOLERANCE = 1e-3
"""The largest number of products with the Hessian for a model's eigenvalues, and how accurate they are to be."""


@dataclass(frozen=True)
class FlatnessStudy(Study):
    """The largest eigenvalues of the Hessian at each model, and its `sharpness` at each distance.

    `residuals` is the distance from each value within which an eigenvalue lies. Raises `ValueError` if a number is not
    positive.
    """

    kinds: ClassVar = ("flatness",)
    examples: ClassVar = f"""\
  fedsash flatness runs/a --models model,window5
  fedsash flatness runs/a --models model --eigenvalues 1 --rho 0.05,0.1 --samples all

{MODELS}"""

    models: tuple[str, ...] = field(metadata=option("the models; see below", metavar="A[,B...]"))
    eigenvalues: int = field(default=5, metadata=option("how many", metavar="K"))
    rho: tuple[float, ...] = field(default=(0.05,), metadata=option("distances", metavar="R[,R...]"))
    split: Literal["test", "train"] = field(default="train", metadata=option("the samples to evaluate on"))
    samples: int | None = field(default=1000, metadata=option("at most N of them, or all", metavar="N", none="all"))

    def __post_init__(self) -> None:
        valid = 1 <= self.eigenvalues <= STEPS
        check(valid, "FlatnessStudy.eigenvalues", self.eigenvalues, f"must be from 1 to {STEPS}")
        for rho in self.rho:
            check(isfinite(rho) and rho > 0, "FlatnessStudy.rho", rho, "must be a positive number")

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        samples = run.samples(self.split, self.samples)
        curvature = curvature_of(run.federation, samples)
        total = len(self.models) * STEPS
        models: dict[str, Any] = {}
        for model, name in zip(self.models, names_of(self.models), strict=True):
            tick = partial(_tick, progress, len(models) * STEPS, total)
            models[name] = self._measured(curvature, run.model(model), tick)
        return {
            "title": f"{run.folder.name}: flatness of {', '.join(models)}",
            "split": self.split,
            "samples": len(samples),
            "models": models,
        }

    def _measured(self, curvature: Curvature, w: Tensor, tick: Callable[[int], None]) -> dict[str, Any]:
        """The numbers of one model."""
        products = iter(range(1, STEPS + 1))

        def times(v: Tensor) -> Tensor:
            tick(next(products))
            return curvature.hessian_times(w, v)

        largest = lanczos(times, w, self.eigenvalues, TOLERANCE, STEPS)
        rises = {f"{rho:g}": sharpness(curvature, w, rho) for rho in self.rho}
        tick(STEPS)
        return {
            "eigenvalues": largest.values,
            "converged": largest.converged(TOLERANCE),
            "residuals": largest.residuals,
            "sharpness": rises,
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        models = findings["models"]
        heads = ["model", "eigenvalues"]
        heads += [f"sharpness\nat {rho}" for rho in _radii(models)]
        yield heads
        for name, measured in models.items():
            values = []
            for place, value in enumerate(measured["eigenvalues"]):
                values.append(_bounded(number(value), exact=place < measured["converged"]))
            yield [name, "  ".join(values), *map(number, measured["sharpness"].values())]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """Bars of the eigenvalues and of the sharpness. Each model has a colour."""
        models = findings["models"]
        radii = _radii(models)
        eigenvalues = {}
        rises = {}
        for name, measured in models.items():
            eigenvalues[name] = measured["eigenvalues"]
            rises[name] = [measured["sharpness"][radius] for radius in radii]
        most = max(map(len, eigenvalues.values()))
        places = [str(place) for place in range(1, most + 1)]
        curved = Axis("eigenvalue")
        panels = [
            _bars("largest eigenvalues of the Hessian", curved, "number of the eigenvalue", places, eigenvalues),
            _bars("sharpness", Axis("rise of the loss"), "distance rho", radii, rises),
        ]
        largest = []
        too_low = []
        for name, measured in models.items():
            converged = measured["converged"]
            value = _bounded(number(measured["eigenvalues"][0]), exact=converged > 0)
            largest.append(f"{name}: largest eigenvalue {value}")
            if converged < len(measured["eigenvalues"]):
                too_low.append(f"{name}'s after number {converged}")
        caption = (
            f"How sharply the loss bends around each model, {split_in_words(findings)}; smaller is flatter. "
            f"{'; '.join(largest)}."
        )
        if too_low:
            caption += (
                f" Too low, since {STEPS} products with the Hessian were too few: eigenvalues of {', '.join(too_low)}."
            )
        return Picture(findings["title"], panels, columns=2, caption=caption)


def _tick(progress: OnProgress, before: int, total: int, done: int) -> None:
    """Report the products with the Hessian of all models: those of the models `before`, and those of this one."""
    progress(before + done, total)


def _radii(models: Mapping[str, Any]) -> list[str]:
    """The distances at which the sharpness was measured, as texts."""
    first = next(iter(models.values()))
    return list(first["sharpness"])


def _bounded(text: str, exact: bool) -> str:
    """A number, or that the true one is at least this."""
    if exact:
        return text
    return f"≥{text}"


def _bars(name: str, y: Axis, x: str, ticks: Sequence[str], heights: Mapping[str, Sequence[float]]) -> Panel:
    """Groups of bars, with one bar for each model in each group."""
    rows = []
    for values in heights.values():
        missing = [None] * (len(ticks) - len(values))
        rows.append([*values, *missing])
    bars = Bars(list(heights), range(len(ticks)), rows, of_bars(len(rows)))
    middle = (len(ticks) - 1) / 2
    reach = max(len(ticks), FEWEST) / 2  # a few groups are not wider than many
    marks = {float(place): tick for place, tick in enumerate(ticks)}
    below = Axis(x, middle - reach, middle + reach, ticks=marks)
    return Panel(name, below, y, [bars])


@dataclass(frozen=True, eq=False)
class Eigenvalues:
    """The largest eigenvalues found, `values` `[k]`, descending, after `products` products with the matrix H.

    `residuals` `[k]` are ||H y - value * y|| for the unit vectors y that belong to the values. Up to rounding, an
    eigenvalue lies within this distance of each value. `scale` is the largest |eigenvalue| found.
    """

    values: Floats
    residuals: Floats
    products: int
    scale: float

    def within(self, tolerance: float) -> bool:
        """Whether all residuals are at most `tolerance * scale`."""
        return self.converged(tolerance) == len(self.values)

    def converged(self, tolerance: float) -> int:
        """How many values, from the largest on, have residuals of at most `tolerance * scale`.

        After the first that has not, a small residual says only that some eigenvalue is near.
        """
        return int(np.append(self.residuals > tolerance * self.scale, True).argmax())


def hessian_eigenvalues(
    curvature: Curvature, w: Tensor, k: int = 1, tolerance: float = TOLERANCE, steps: int = STEPS, seed: int = 0
) -> Eigenvalues:
    """The k largest eigenvalues of the Hessian of L at `w` `[D]`; see `lanczos`."""
    return lanczos(lambda v: curvature.hessian_times(w, v), w, k, tolerance, steps, seed)


def lanczos(
    times: Callable[[Tensor], Tensor],
    like: Tensor,
    k: int,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
    seed: int = 0,
) -> Eigenvalues:
    """The k largest (most positive) eigenvalues of the symmetric matrix H of which `times(v)` is H v.

    The Lanczos iteration with full reorthogonalisation, done twice (Parlett 1980). After m products there is an
    orthonormal basis `[m, D]` in which H is the tridiagonal matrix T. The outer eigenvalues of T approach those of H.
    The iteration ends when the k residuals are within `tolerance`, or after `steps` products; the residuals show how
    accurate the result is. If `steps` were too few, the values are too low, never too high. Vectors have the type and
    device of `like` `[D]`, and `steps` of them must fit into memory.

    The basis may span an invariant subspace of H, for example if H has low rank. Then the iteration continues from a
    new random vector, until such a subspace adds nothing to the k largest values. A multiple eigenvalue is found
    several times only if the iteration goes on long enough, and once if `tolerance` is reached before.

    Raises `ValueError` if k is not from 1 to D, `steps` is below k, or H v is not finite.
    """
    size = len(like)
    check(1 <= k <= size, "lanczos: k", k, f"must be from 1 to the number of parameters, {size}")
    check(steps >= k, "lanczos: steps", steps, f"must be at least k = {k}")
    rng = generator(seed, Purpose.DIRECTION, 0)
    basis = like.new_empty(min(steps, size), size)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    previous: Eigenvalues | None = None  # those of the invariant subspaces so far
    q = _new_direction(basis[:0], rng)
    for m in range(1, len(basis) + 1):
        basis[m - 1] = q
        r = times(q)
        diagonal.append(float(q @ r))
        check(isfinite(diagonal[-1]), "lanczos: H v", diagonal[-1], "must be finite")
        r = _orthogonal(r, basis[:m])
        beta = float(r.norm())
        largest = _ritz(diagonal, off_diagonal, beta, k)
        invariant = beta <= 100 * torch.finfo(like.dtype).eps * largest.scale
        converged = previous is None and largest.within(tolerance)
        if invariant:  # residuals say nothing about eigenvalues outside the subspace, so the next one decides
            converged = _same(largest, previous, tolerance)
        if m == len(basis) or (m >= k and converged):
            break
        if invariant:
            previous = largest
            off_diagonal.append(0.0)
            q = _new_direction(basis[:m], rng)
        else:
            off_diagonal.append(beta)
            q = r / beta
    return largest


def _ritz(diagonal: list[float], off_diagonal: list[float], beta: float, k: int) -> Eigenvalues:
    """The (at most k) largest eigenvalues of T, and the residuals of their vectors."""
    t = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
    values, vectors = np.linalg.eigh(t)
    largest = slice(None, -k - 1, -1)  # eigh has the smallest first
    residuals = beta * np.abs(vectors[-1, largest])
    return Eigenvalues(values[largest], residuals, len(diagonal), float(np.abs(values).max()))


def _same(largest: Eigenvalues, previous: Eigenvalues | None, tolerance: float) -> bool:
    """Whether the largest eigenvalues have not changed since the previous ones, if there are as many of them."""
    if previous is None or len(previous.values) < len(largest.values):
        return False
    change = np.abs(largest.values - previous.values).max()
    return bool(change <= tolerance * largest.scale)


def _orthogonal(r: Tensor, basis: Tensor) -> Tensor:
    """`r` `[D]` minus its projection onto the span of `basis` `[m, D]`."""
    for _ in range(2):
        r = torch.addmv(r, basis.T, basis @ r, alpha=-1)
    return r


def _new_direction(basis: Tensor, rng: np.random.Generator) -> Tensor:
    """A random unit vector `[D]` orthogonal to `basis` `[m, D]`, m < D."""
    draw = rng.standard_normal(basis.shape[1], dtype=np.float32)
    r = _orthogonal(torch.from_numpy(draw).to(basis), basis)
    return torch.nn.functional.normalize(r, dim=0)


def curvature_of(federation: Federation, samples: Samples) -> Curvature:
    """The loss that the federation's clients minimise, over these samples."""
    goal = federation.goal
    batch = federation.evaluation.batch
    return Curvature(federation.module, federation.training_data, samples, goal.loss, batch, federation.layout)


def sharpness(curvature: Curvature, w: Tensor, rho: float = 0.05, steps: int = 1) -> float:
    """The rise of the loss at distance `rho` in parameter space, in the worst direction that gradient ascent finds.

        max over i = 1..steps of L(w + rho * d_i) - L(w),    d_1 = g(w)/||g(w)||,    d_{i+1} = g(w + rho * d_i)/||.||

    where g is the gradient of L. One step is the ascent of SAM (Foret et al. 2021). More steps are a power iteration,
    which at a minimum converges to the Hessian's first eigenvector. (There g is 0, and d_1 is random.) The result is a
    lower bound of the largest rise on the sphere. Raises `ValueError` if `rho` is not positive, `steps` is below 1, or
    g is not finite.
    """
    check(isfinite(rho) and rho > 0, "sharpness: rho", rho, "must be a positive number")
    check(steps >= 1, "sharpness: steps", steps, "must be at least 1")
    point = w
    losses = []
    for _ in range(steps):
        g = curvature.gradient(point)
        length = float(g.norm())
        check(isfinite(length), "sharpness: norm of the gradient", length, "must be finite")
        d = g / length
        if length == 0:
            d = _new_direction(w.new_empty(0, len(w)), generator(0, Purpose.DIRECTION, 0))
        point = w + rho * d
        losses.append(curvature.loss(point))
    return float(np.max(losses)) - curvature.loss(w)
