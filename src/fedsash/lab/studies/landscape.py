"""The loss on lines and planes through a run's models, and on surfaces around them."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from ...data.federated import FederatedData
from ...data.samples import Samples
from ...evaluation import Calibration, Evaluation, Goal, Scorer
from ...runs.pictures import Axis, Field, Line, Panel, Picture, Points, Rule, look
from ...runs.pictures.picture import Layer
from ...runs.pictures.scales import INNER
from ...settings.errors import RunError, check, check_count
from ...system.files import replace_file
from ...tasks import Criterion
from ...tasks.criterion import UNKNOWN
from ...vector.arrays import Floats
from ...vector.layout import Layout
from ...vector.randomness import Purpose, generator
from .opened import MODELS, OpenRun
from .study import Findings, OnProgress, Rows, Study, names_of, number, option, split_in_words, times, unseen

KINDS = ("surface", "line", "plane")
"""What is drawn of one, of two, and of three or more models."""
MEAN = "mean of the three"
RE_ESTIMATED = "re-estimated"
"""What BatchNorm's statistics are at the points of a grid."""

STRIP = 0.4
"""A plane is stretched if its width is below this share of its height, or its height below this share of its width."""

POINT = "point"
"""The name of a point of a section, for its statistics."""

SAVING = 1.0
"""The time between two saves of a survey's numbers, in seconds."""


@dataclass(frozen=True)
class LandscapeStudy(Study):
    """The surface around one model, the line through two models, or the plane through three, on a grid.

    Further models are marked where they lie if they are projected into the plane, with their distance from it. The grid
    has `points` points in each direction. The loss is measured on `samples` (None: all) of a `split`. `seed` draws the
    directions of a surface.
    """

    kinds: ClassVar = ("line", "plane", "surface")
    takes: ClassVar = "each"
    examples: ClassVar = f"""\
  fedsash landscape runs/a --models model,window5                            the line through two models
  fedsash landscape runs/a --models round:10,round:20,round:30 --points 31   the plane through three
  fedsash landscape runs/a --models client:3@40,client:5@40,client:7@40,model     and the model, projected
  fedsash landscape runs/a runs/b --models model                             surfaces, on common scales
  fedsash landscape runs/a --models model,window5 --surface --samples 1000   a surface around each

Ctrl-C loses nothing: the same command continues.

{MODELS}"""

    models: tuple[str, ...] = field(metadata=option("the models; see below", metavar="A[,B[,C[,...]]]"))
    surface: bool = field(default=False, metadata=option("a surface around each model"))
    points: int = field(default=21, metadata=option("points in each direction"))
    split: Literal["test", "train"] = field(default="test", metadata=option("the samples to evaluate on"))
    samples: int | None = field(default=None, metadata=option("at most N of them, or all", metavar="N", none="all"))
    seed: int = field(default=0, metadata=option("for a surface's random directions"))

    def __post_init__(self) -> None:
        check(bool(self.models), "LandscapeStudy.models", "", "must be one model or more")
        valid = 2 <= self.points <= 1000
        check(valid, "LandscapeStudy.points", self.points, "must be at least 2 and at most 1,000 in a direction")
        check_count("LandscapeStudy.seed", self.seed, least=0)

    @property
    def kind(self) -> str:
        if self.surface:
            return "surface"
        return KINDS[min(len(self.models), len(KINDS)) - 1]

    def parts(self) -> Sequence[Study]:
        if not self.surface:
            return [self]
        return [replace(self, models=(model,), surface=False) for model in self.models]

    def measure(
        self, runs: Sequence[OpenRun], progress: OnProgress = unseen, draft: Path | None = None
    ) -> dict[str, Any]:
        (run,) = runs
        federation = run.federation
        samples = run.samples(self.split, self.samples)
        landscape = Landscape(
            federation.module,
            federation.layout,
            federation.training_data,
            samples,
            federation.goal,
            federation.evaluation,
        )
        section = self._section(run)
        relief = landscape.over(section, draft, progress)
        names = names_of(self.models)
        models = [section.at(place) for place in section.places[: len(names)]]
        if self.kind == "plane":
            models = [*models[:3], *section.others]
        at_models = {name: _plain(landscape.at(w)) for name, w in zip(names, models, strict=True)}
        findings = {
            "title": f"{run.folder.name}: {self.kind} {_through(names[:3])}",
            "split": self.split,
            "samples": len(samples),
            "metric": asdict(federation.goal.criterion),
            **_grid(names, relief),
            "at_models": at_models,
        }
        if federation.layout.norms:
            findings["statistics"] = RE_ESTIMATED
        if self.kind == "plane":
            findings["at_mean"] = _plain(landscape.between(section.at(section.places[3])))
        if len(names) > 3:
            findings["projected"] = {}
            for name, place, distance in zip(names[3:], section.places[4:], section.distances, strict=True):
                findings["projected"][name] = {"place": place, "distance": distance}
        if self.kind == "surface":
            findings["seed"] = self.seed
        return findings

    def measure_from(self, draft: Path, runs: Sequence[OpenRun], progress: OnProgress) -> dict[str, Any]:
        return self.measure(runs, progress, draft)

    def _section(self, run: OpenRun) -> Section:
        """The grid of models around, or through, the models of a run."""
        layout = run.federation.layout
        vectors = [run.model(name) for name in self.models]
        if len(vectors) == 1:
            return surface(vectors[0], layout, self.points, self.seed, drawn=Layout(run.federation.module))
        if len(vectors) == 2:
            return line(vectors[0], vectors[1], self.points)
        three = plane(vectors[0], vectors[1], vectors[2], self.points, entries=layout.trained)
        if len(vectors) == 3:
            return three
        return with_projections(three, vectors[3:], entries=layout.trained)

    @staticmethod
    def table(findings: Findings) -> Rows:
        kind = findings["kind"]
        criterion = Criterion(**findings["metric"])
        where = "in the plane" if kind == "plane" else f"on the {kind}"
        yield [where, "loss", criterion.error]
        projected = findings.get("projected") or {}
        for name, at in findings["at_models"].items():
            if name in projected:
                name = f"{name}, {_away(projected[name])}"
            yield [name, number(at["loss"]), criterion.text(at["error"], 2)]
        mean = findings.get("at_mean")
        if mean:
            yield [MEAN, number(mean["loss"]), criterion.text(mean["error"], 2)]
        yield _lowest(findings, criterion)

    @staticmethod
    def picture(findings: Findings) -> Picture:
        draw = {"line": _picture_of_line, "plane": _picture_of_plane, "surface": _picture_of_surface}
        return draw[findings["kind"]](findings)


def _plain(loss_and_error: tuple[float, float]) -> dict[str, float]:
    """Loss and error as plain data."""
    loss, error = loss_and_error
    return {"loss": loss, "error": error}


def _grid(names: Sequence[str], relief: Relief) -> dict[str, Any]:
    """The coordinates of the grid and of the models, and the numbers. In two dimensions there is a row for each y."""
    if len(names) == 2:
        return {"models": names, "beta": relief.axes[0], "loss": relief.loss, "error": relief.error}
    grid = {"x": relief.axes[0], "y": relief.axes[1], "loss": relief.loss.T, "error": relief.error.T}
    if len(names) == 1:
        return {"model": names[0], **grid}
    return {**grid, "models": dict(zip(names[:3], relief.places, strict=False)), "mean": relief.places[3]}


def _through(names: Sequence[str]) -> str:
    """Which models a section goes through, or around, in words."""
    if len(names) == 1:
        return f"around {names[0]}"
    return f"through {', '.join(names[:-1])} and {names[-1]}"


def _lowest(findings: Findings, criterion: Criterion) -> list[str]:
    """The row of the point with the lowest finite loss."""
    loss = np.array(findings["loss"], dtype=float)
    error = np.array(findings["error"], dtype=float)
    if not np.isfinite(loss).any():
        return ["lowest", UNKNOWN, UNKNOWN]
    finite = np.where(np.isfinite(loss), loss, np.inf)
    index = np.unravel_index(int(np.argmin(finite)), loss.shape)
    if findings["kind"] == "line":
        place = f"beta = {findings['beta'][index[0]]:.3g}"
    else:
        place = f"({findings['x'][index[1]]:.3g}, {findings['y'][index[0]]:.3g})"
    return [f"lowest, at {place}", number(loss[index]), criterion.text(float(error[index]), 2)]


def _picture_of_line(findings: Findings) -> Picture:
    """Loss above error. The two models are marked."""
    a, b = findings["models"]
    marks = [Rule(1, "x", str(a)), Rule(0, "x", str(b))]
    panels = []
    for place, quantity in enumerate(_quantities(findings)):
        shown = times(quantity.factor, findings[quantity.key])
        values = Line("", findings["beta"], shown, look(place))
        panels.append(Panel(quantity.label, Axis("beta"), Axis(quantity.label), [*marks, values], width=7, height=2.7))
    caption = (
        f"From {b} (beta = 0) to {a} (beta = 1) on a straight line, {split_in_words(findings)}.{_at_models(findings)}"
        f"{_statistics(findings)}"
    )
    return Picture(findings["title"], panels, caption=caption)


def _picture_of_plane(findings: Findings) -> Picture:
    """Contours of loss and error, with the three models, a cross for their mean, and diamonds for projected models."""
    x, y = zip(*findings["models"].values(), strict=True)
    marks = [Points(list(findings["models"]), x, y)]
    mean = findings.get("mean")
    if mean:
        marks.append(Points([MEAN], [mean[0]], [mean[1]], "cross"))
    projected = findings.get("projected") or {}
    if projected:
        places = [at["place"] for at in projected.values()]
        marks.append(Points(list(projected), [x for x, _ in places], [y for _, y in places], "diamond"))
    ratio = _extent(findings["y"]) / _extent(findings["x"])
    if ratio < STRIP:
        columns = 1
        width = 8.0
        height = 3.2
    else:
        columns = 2
        width = 5.2
        height = min(max(4.2 * ratio, 2.4), 7)
    square = STRIP < ratio < 1 / STRIP
    distance = Axis("distance in parameter space")
    panels = []
    for values in _fields(findings):
        layers: list[Layer] = [values, *marks]
        panels.append(Panel(values.label, distance, distance, layers, width=width, height=height, square=square))
    caption = (
        f"The plane through {', '.join(findings['models'])}, {split_in_words(findings)}; the cross is their mean."
        f"{_at_models(findings)}{_statistics(findings)} {_scale_end()}"
    )
    if projected:
        away = ", ".join(f"{name} {_away(at)}" for name, at in projected.items())
        caption += f" Diamonds are models beside the plane, projected into it: {away}."
    return Picture(findings["title"], panels, columns=columns, caption=caption)


def _away(projected: Mapping[str, Any]) -> str:
    """How far a projected model is from the plane, in words."""
    return f"{projected['distance']:.3g} away"


def _picture_of_surface(findings: Findings) -> Picture:
    """The loss and the error in three dimensions, and as contours."""
    x = Axis("a, along the first direction")
    y = Axis("b, along the second")
    centre = Points([""], [0], [0])
    panels = []
    for values in _fields(findings, relief=True):
        panels.append(Panel(f"{values.label}, in 3-D", Axis("a"), Axis("b"), [values]))
    for values in _fields(findings):
        panels.append(Panel(f"{values.label}, from above", x, y, [values, centre], width=5.4, square=True))
    caption = (
        f"Around {findings['model']}, {split_in_words(findings)}, along two random directions a and b with its "
        f"filters' norms.{_at_models(findings)}{_statistics(findings)} Surfaces that are shown together have the same "
        f"scales. {_scale_end()}"
    )
    return Picture(findings["title"], panels, columns=2, caption=caption)


class Quantity(NamedTuple):
    """A measured quantity: its key in the findings, its label, and the factor between number and shown value."""

    key: str
    label: str
    factor: float


def _quantities(findings: Findings) -> list[Quantity]:
    """The loss, and the error unless it is the loss."""
    criterion = Criterion(**findings["metric"])
    loss = Quantity("loss", "loss", 1.0)
    if criterion.name == "loss":
        return [loss]
    return [loss, Quantity("error", criterion.label(name=criterion.error), float(criterion.scale))]


def _fields(findings: Findings, relief: bool = False) -> list[Field]:
    """The loss and the error over the plane, as contours or, in `relief`, in three dimensions."""
    fields = []
    for key, label, factor in _quantities(findings):
        values = [times(factor, row) for row in findings[key]]
        fields.append(Field(label, findings["x"], findings["y"], values, relief))
    return fields


def _extent(values: Sequence[float]) -> float:
    """The range of coordinates; 1 if there is none."""
    return max(values) - min(values) or 1


def _at_models(findings: Findings) -> str:
    """The models' own losses and errors in words, if they are known."""
    measured = dict(findings.get("at_models") or {})
    mean = findings.get("at_mean")
    if mean:
        measured[MEAN] = mean
    if not measured:
        return ""
    criterion = Criterion(**findings["metric"])
    texts = []
    for name, at in measured.items():
        error = criterion.text(at["error"], 2)
        texts.append(f"{name}: loss {number(at['loss'])}, {criterion.error} {error}")
    return f" {'; '.join(texts)}."


def _statistics(findings: Findings) -> str:
    """A sentence on BatchNorm's statistics, if the models have them."""
    if findings.get("statistics") != RE_ESTIMATED:
        return ""
    return " BatchNorm's statistics are re-estimated at every point; these models' numbers have their own."


def _scale_end() -> str:
    """A sentence on the largest value that the colours tell apart."""
    return f"The scale ends where {100 * INNER:g} % of the points do."


@dataclass(frozen=True, eq=False)
class Section:
    """A grid of models in a line or a plane, each `sum_j c_j * vectors[j]` for `vectors` `[k, D]`.

    `axes` are the grid's coordinates along its one or two directions. `coefficients` maps coordinates to `c` `[k]`.
    `places` `[m, len(axes)]` are the coordinates of the models that the section goes through. At a model's coordinates
    one c is 1 and the others are 0, so that the point is exactly this model. The last places may be those of `others`,
    models that lie beside the section, with their `distances` from it.
    """

    vectors: Tensor
    axes: tuple[Floats, ...]
    places: Floats
    coefficients: Callable[[Sequence[float]], Sequence[float]]
    others: Sequence[Tensor] = ()
    distances: Sequence[float] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of grid points in each direction."""
        return tuple(map(len, self.axes))

    def at(self, place: Sequence[float]) -> Tensor:
        """The model `[D]` at the coordinates `place`."""
        c = torch.tensor(self.coefficients(place), dtype=self.vectors.dtype, device=self.vectors.device)
        return (c[:, None] * self.vectors).sum(dim=0)

    def point(self, *index: int) -> Tensor:
        """The model `[D]` at one point of the grid."""
        place = [float(axis[i]) for axis, i in zip(self.axes, index, strict=True)]
        return self.at(place)


def line(a: Tensor, b: Tensor, points: int = 41, margin: float = 0.5) -> Section:
    """The line `beta * a + (1 - beta) * b` through two models `[D]`, for beta from -margin to 1 + margin.

    beta = 1 is a and beta = 0 is b (Zhou et al., IMA). `places` are the coordinates of a and b.
    """

    def coefficients(place: Sequence[float]) -> Sequence[float]:
        (beta,) = place
        return beta, 1 - beta

    axis = _axis(points, -margin, 1 + margin)
    return Section(torch.stack([a, b]), (axis,), np.array([[1.0], [0.0]]), coefficients)


def plane(
    w1: Tensor, w2: Tensor, w3: Tensor, points: int = 21, margin: float = 0.2, entries: int | None = None
) -> Section:
    """The plane through three models `[D]`, in distances of parameter space. The point (x, y) is

        w1 + x * u/||u|| + y * v/||v||,    u = w2 - w1,    v = (w3 - w1) - <w3 - w1, u>/||u||^2 * u

    The directions are unit vectors, as in the code of Garipov et al. 2018. With the IMA paper's `u/||u||^2` and
    `v/||v||^2` the two axes would have different scales. The grid encloses the three models with a margin, which is a
    share of their extent in x and in y. If w3 projects onto the segment from w1 to w2, this is the grid of their code.
    `places` are the coordinates of w1, w2, w3 and their mean: (0, 0), (||u||, 0), (<w3 - w1, u>/||u||, ||v||) and the
    mean of these. Only the first `entries` count in distances (None: all): statistics of batches are no coordinates.

    Raises `ValueError` if the models lie on one line.
    """
    # on the host, because Apple's GPUs have no float64
    first, second, third = (w[:entries].detach().cpu().double() for w in (w1, w2, w3))
    u = second - first
    to_third = third - first
    length = float(u.norm())
    along = 0.0
    height = 0.0
    if length:
        along = float(to_third @ u) / length
        height = float((to_third - along / length * u).norm())
    spread = float(to_third.norm())
    check(height > 1e-6 * spread, "plane: height of w3 over the line through w1 and w2", height, "must be above 0")

    def coefficients(place: Sequence[float]) -> Sequence[float]:
        x, y = place
        c3 = y / height
        c2 = (x - c3 * along) / length
        return 1 - c2 - c3, c2, c3

    unit = _axis(points, -margin, 1 + margin)
    corners = np.array([[0.0, 0.0], [length, 0.0], [along, height]])
    places = np.vstack([corners, corners.mean(axis=0)])
    left = min(0.0, along)
    right = max(length, along)
    axes = (left + (right - left) * unit, height * unit)
    return Section(torch.stack([w1, w2, w3]), axes, places, coefficients)


def with_projections(
    section: Section, others: Sequence[Tensor], margin: float = 0.2, entries: int | None = None
) -> Section:
    """A plane with further models `[D]`, each at the place of its orthogonal projection, and a grid that encloses them.

    `distances` are those of the models from the plane: with the unit vectors e1 and e2 of the plane and the place
    (x, y) = (<w - w1, e1>, <w - w1, e2>) it is ||w - w1 - x e1 - y e2||. Only the first `entries` count.
    """
    w1, w2, w3 = (w[:entries].detach().cpu().double() for w in section.vectors)
    length = float(section.places[1][0])
    along, height = map(float, section.places[2])
    e1 = (w2 - w1) / length
    e2 = (w3 - w1 - along * e1) / height
    places = []
    distances = []
    for other in others:
        difference = other[:entries].detach().cpu().double() - w1
        x = float(difference @ e1)
        y = float(difference @ e2)
        places.append([x, y])
        distances.append(float((difference - x * e1 - y * e2).norm()))
    all_places = np.vstack([section.places, places])
    axes = []
    for axis, coordinates in zip(section.axes, all_places.T, strict=True):
        low = float(coordinates.min())
        high = float(coordinates.max())
        axes.append(low + (high - low) * _axis(len(axis), -margin, 1 + margin))
    return replace(section, axes=tuple(axes), places=all_places, others=others, distances=distances)


def surface(w: Tensor, layout: Layout, points: int, seed: int = 0, drawn: Layout | None = None) -> Section:
    """The points `w + a * d1 + b * d2` around a model, a and b from -1 to 1 (Li et al. 2018).

    `d1` and `d2` are `filter_normalised`. With the same `seed` they come from the same Gaussian draws for all models
    that have `drawn` in common, so their surfaces can be compared. `places` has the coordinates of w, (0, 0).
    """
    first = filter_normalised(w, layout, seed, 1, drawn)
    second = filter_normalised(w, layout, seed, 2, drawn)
    vectors = torch.stack([w, first, second])
    axis = _axis(points, -1.0, 1.0)
    return Section(vectors, (axis, axis), np.zeros((1, 2)), lambda place: (1.0, *place))


def filter_normalised(w: Tensor, layout: Layout, seed: int, number: int, drawn: Layout | None = None) -> Tensor:
    """A random direction `[D]` with the scale of every filter of the model `w` `[D]` (Li et al. 2018).

    d is a Gaussian draw of the shape of each parameter. A filter j is a slice along the first dimension; it becomes
    `d_j * ||w_j|| / ||d_j||`. Parameters of one dimension (biases, scales and shifts of norms) have direction 0. The
    draw depends on `seed` and `number` only, not on the model's values and precision. It is made in the order of
    `drawn`, a layout of the same tensors; left out, in that of the model's `layout`.
    """
    draw = generator(seed, Purpose.DIRECTION, number).standard_normal(layout.size, dtype=np.float32)
    direction = (drawn or layout).views(torch.from_numpy(draw).to(w))
    rescaled = []
    for name, parameter in layout.views(w).items():
        rescaled.append(_rescaled(direction[name], parameter).flatten())
    return torch.cat(rescaled)


def _rescaled(d: Tensor, w: Tensor) -> Tensor:
    """`d`, scaled so that each filter has the norm of the same filter of `w`."""
    if d.dim() < 2:
        return torch.zeros_like(d)
    factors = w.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)
    each_filter = [1] * (d.dim() - 1)
    return torch.mul(d, factors.view(-1, *each_filter))


def _axis(points: int, low: float, high: float) -> Floats:
    """Evenly spaced coordinates. They are rounded, so that 0 and 1 are exact if they are on the grid."""
    check(points >= 2, "points", points, "must be at least 2 a direction")
    return np.linspace(low, high, points).round(12)


@dataclass(frozen=True, eq=False)
class Relief:
    """Mean `loss` and `error` (see `Criterion.error`) at the points of a section, each of the grid's shape.

    The first `done` points have been evaluated (the last index varies fastest); the others are NaN. `axes` and `places`
    are those of the section. `mark` is a checksum of the models and samples that the numbers belong to.
    """

    axes: tuple[Floats, ...]
    places: Floats
    loss: Floats
    error: Floats
    done: int
    mark: int

    def save(self, file: Path) -> None:
        """Write everything into an `.npz` file, completely or not at all."""
        content = io.BytesIO()
        arrays: dict[str, Any] = dict(vars(self))
        for place, axis in enumerate(arrays.pop("axes")):
            arrays[f"axis{place}"] = axis
        np.savez(content, **arrays)
        replace_file(file, content.getvalue())

    @classmethod
    def load(cls, file: Path) -> Relief:
        """What `save` wrote. Raises `RunError` if the file is damaged."""
        try:
            with np.load(file) as arrays:
                axes = tuple(arrays[name] for name in sorted(arrays) if name.startswith("axis"))
                return cls(
                    axes,
                    arrays["places"],
                    arrays["loss"],
                    arrays["error"],
                    int(arrays["done"]),
                    int(arrays["mark"]),
                )
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
            raise RunError(f"{file} is damaged: remove it, and the study begins anew") from error


class Landscape:
    """Evaluates the points of sections on `samples` of the federated `data`: its test set, or some that train.

    `layout` is that of the models. `goal` has the loss and the metric that decides, and `evaluation` says how many
    samples pass through the model at once. Module, samples and sections must be on one device. The numbers at a point
    are equal to those of an evaluation of its model, with BatchNorm's statistics re-estimated (see `Calibration`):
    those of a section are a mix of the models', which are not its own. Points are evaluated one by one, because stacked
    models would need grouped convolutions, which are slower.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        data: FederatedData,
        samples: Samples,
        goal: Goal,
        evaluation: Evaluation,
    ) -> None:
        self._scorer = Scorer(module, layout, goal, data.problem, evaluation.batch)
        self._calibration = Calibration(module, layout, data, evaluation, [POINT])
        self._samples = samples
        self._criterion = goal.criterion

    def between(self, w: Tensor) -> tuple[float, float]:
        """Mean loss and error at the point `w` `[D]` of a section, with statistics of its own."""
        return self.at(self._calibration.values({POINT: w})[POINT])

    def at(self, w: Tensor) -> tuple[float, float]:
        """Mean loss and error of the model `w` `[D]`."""
        scores = self._scorer.values(w, self._samples)
        return scores["loss"], self._criterion.error_of(scores[self._criterion.name])

    def over(self, section: Section, file: Path | None = None, progress: OnProgress = unseen) -> Relief:
        """Mean loss and error at every point of a section.

        With a `file`, the numbers so far are saved every second, and at the end or on any interruption. The next call
        continues from them, with the same bytes as without an interruption. `progress(done, points)` is called after
        every point.

        Raises `ValueError` if the file holds other models, another grid or other samples.
        """
        relief = self._started(section, file)
        saved = time.monotonic()
        loss = relief.loss.ravel()
        error = relief.error.ravel()  # views: writing to them fills the relief
        try:
            for done in range(relief.done, loss.size):
                index = np.unravel_index(done, section.shape)
                loss[done], error[done] = self.between(section.point(*map(int, index)))
                relief = replace(relief, done=done + 1)
                if file is not None and time.monotonic() > saved + SAVING:
                    relief.save(file)
                    saved = time.monotonic()
                progress(done + 1, loss.size)
        finally:
            if file is not None:
                relief.save(file)
        return relief

    def _started(self, section: Section, file: Path | None) -> Relief:
        """The numbers of a section so far: those in the file, or none."""
        grid = [torch.from_numpy(numbers) for numbers in (section.places, *section.axes)]
        mark = _checksum(section.vectors, self._samples.y, *grid)
        if file is None or not file.exists():
            loss = np.full(section.shape, np.nan)
            error = np.full(section.shape, np.nan)
            return Relief(section.axes, section.places, loss, error, 0, mark)
        relief = Relief.load(file)
        requirement = "holds other models, another grid or other samples: give another file, or remove this one"
        check(relief.mark == mark, "Landscape.over: file", str(file), requirement)
        return relief


def _checksum(*tensors: Tensor) -> int:
    """A checksum of the bytes of tensors, in their order."""
    value = 0
    for tensor in tensors:
        value = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data, value)
    return value
