"""Sections of the parameter space: lines and planes through models, and planes around a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....basics.arrays import Floats
from ....basics.layout import Layout
from ....basics.randomness import Purpose, generator
from ....settings.errors import check


@dataclass(frozen=True, eq=False)
class Section:
    """A grid of models in a line or a plane, each `sum_j c_j * vectors[j]` for `vectors` `[k, D]`.

    `axes` are the grid's coordinates along its one or two directions. `coefficients` maps coordinates to `c` `[k]`.
    `places` `[m, len(axes)]` are the coordinates of the models that the section goes through. At a model's coordinates
    one c is 1 and the others are 0, so that the point is exactly this model.
    """

    vectors: Tensor
    axes: tuple[Floats, ...]
    places: Floats
    coefficients: Callable[[Sequence[float]], Sequence[float]]

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
        return self.at([float(axis[i]) for axis, i in zip(self.axes, index, strict=True)])


def line(a: Tensor, b: Tensor, points: int = 41, margin: float = 0.5) -> Section:
    """The line `beta * a + (1 - beta) * b` through two models `[D]`, for beta from -margin to 1 + margin.

    beta = 1 is a and beta = 0 is b (Zhou et al., IMA). `places` are the coordinates of a and b.
    """
    return Section(torch.stack([a, b]), (_axis(points, -margin, 1 + margin),), np.array([[1.0], [0.0]]), _on_line)


def _on_line(place: Sequence[float]) -> Sequence[float]:
    (beta,) = place
    return beta, 1 - beta


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
    first, second, third = (
        w[:entries].detach().cpu().double() for w in (w1, w2, w3)
    )  # on the host, because Apple's GPUs have no float64
    u = second - first
    to_third = third - first
    length = float(u.norm())
    along = float(to_third @ u) / length if length else 0.0
    height = float((to_third - along / length * u).norm()) if length else 0.0
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
    axes = left + (right - left) * unit, height * unit
    return Section(torch.stack([w1, w2, w3]), axes, places, coefficients)


def surface(w: Tensor, layout: Layout, points: int, seed: int = 0, drawn: Layout | None = None) -> Section:
    """The points `w + a * d1 + b * d2` around a model, a and b from -1 to 1 (Li et al. 2018).

    `d1` and `d2` are `filter_normalised`. With the same `seed` they come from the same Gaussian draws for all models
    that have `drawn` in common, so their surfaces can be compared. `places` has the coordinates of w, (0, 0).
    """
    vectors = torch.stack([w, *(filter_normalised(w, layout, seed, number, drawn) for number in (1, 2))])
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
    return torch.cat([_rescaled(direction[name], own).flatten() for name, own in layout.views(w).items()])


def _rescaled(d: Tensor, w: Tensor) -> Tensor:
    """`d`, scaled so that each filter has the norm of the same filter of `w`."""
    if d.dim() < 2:
        return torch.zeros_like(d)
    sizes = w.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)
    return torch.mul(d, sizes.view(-1, *(1,) * (d.dim() - 1)))


def _axis(points: int, low: float, high: float) -> Floats:
    """Evenly spaced coordinates. They are rounded, so that 0 and 1 are exact if they are on the grid."""
    check(points >= 2, "points", points, "must be at least 2 a direction")
    return np.linspace(low, high, points).round(12)
