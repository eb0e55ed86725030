"""Lines, planes and surfaces against their identities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsash.data.federated import FederatedData
from fedsash.evaluation import Evaluation
from fedsash.lab.studies.landscape import (
    Landscape,
    Relief,
    Section,
    filter_normalised,
    line,
    plane,
    surface,
    with_projections,
)
from fedsash.models import build
from fedsash.vector.layout import Layout
from support.scoring import evaluator, goal, unasked
from support.worlds import Point, data, mlp, quadratics

LAYOUT = Layout(mlp())


def models(count: int, seed: int = 0) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, LAYOUT.size, dtype=torch.float64, generator=rng))


def landscape(world: FederatedData | None = None) -> Landscape:
    world = world or data()
    assert world.test is not None
    return Landscape(mlp(), LAYOUT, world, world.test, goal(world), Evaluation())


def bowl(samples: list[list[float]]) -> Landscape:
    """The loss 1/2 ||x - w||^2 over samples x, with w in the plane."""
    world = FederatedData.from_arrays(np.array(samples), [0] * len(samples), [range(len(samples))], classes=2)
    own = goal(world, quadratics(torch.ones(2, dtype=torch.float64)))
    point = Point([0.0, 0.0])
    return Landscape(point, Layout(point), world, world.train, own, Evaluation())


def numbers(relief: Relief) -> tuple[object, ...]:
    return tuple(map(bytes, (*relief.axes, relief.places, relief.loss, relief.error))), relief.done, relief.mark


def test_a_point_has_the_evaluators_numbers_bitwise() -> None:
    world, (w,) = data(), models(1)
    (metrics,) = evaluator(world, mlp()).evaluate(w, 0, "model", unasked)
    assert landscape(world).at(w) == (metrics.loss, 1 - metrics["accuracy"])


def test_training_samples_and_subsets_of_them_can_be_surveyed() -> None:
    """The mean over all is the mean of the means over two halves."""
    world, (w,) = data(), models(1)
    halves = [world.train[torch.arange(start, 52, 2)] for start in (0, 1)]
    whole = Landscape(mlp(), LAYOUT, world, world.train, goal(world), Evaluation()).at(w)
    parts = [Landscape(mlp(), LAYOUT, world, half, goal(world), Evaluation()).at(w) for half in halves]
    assert whole == pytest.approx(np.mean(parts, axis=0), abs=1e-14)


def test_a_line_ends_at_its_models_exactly() -> None:
    a, b = models(2)
    section = line(a, b, points=41, margin=0.5)
    assert section.axes[0][[0, 10, 30, 40]].tolist() == [-0.5, 0, 1, 1.5]
    assert torch.equal(section.point(30), a) and torch.equal(section.point(10), b)
    assert [torch.equal(section.at(place), w) for place, w in zip(section.places, (a, b), strict=True)] == [True, True]


def test_the_line_from_b_to_a_is_the_one_from_a_to_b_backwards() -> None:
    a, b = models(2)
    there, back = (landscape().over(line(*ends, points=5)) for ends in ((a, b), (b, a)))
    np.testing.assert_allclose(there.loss, back.loss[::-1], rtol=1e-14)
    np.testing.assert_array_equal(there.error, back.error[::-1])


def test_a_linear_model_with_squared_loss_has_a_parabola_along_a_line() -> None:
    relief = bowl([[1.0, 0.0], [3.0, 2.0]]).over(line(torch.tensor([2.0, 5.0]).double(), torch.zeros(2).double(), 9))
    third_differences = np.diff(relief.loss, n=3)
    np.testing.assert_allclose(third_differences, 0, atol=1e-12)
    beta = relief.axes[0]
    expected = [np.mean([(1 - 2 * s) ** 2 + (5 * s) ** 2, (3 - 2 * s) ** 2 + (2 - 5 * s) ** 2]) / 2 for s in beta]
    np.testing.assert_allclose(relief.loss, expected, rtol=1e-14)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([torch.float32, torch.float64]))
def test_a_plane_goes_through_its_three_models_exactly(seed: int, dtype: torch.dtype) -> None:
    ws = [w.to(dtype) for w in models(3, seed)]
    section = plane(*ws)
    assert all(torch.equal(section.at(place), w) for place, w in zip(section.places[:3], ws, strict=True))
    mean = torch.stack(ws).double().mean(dim=0).to(dtype)
    torch.testing.assert_close(section.at(section.places[3]), mean, rtol=0, atol=50 * torch.finfo(dtype).eps)


def test_distances_in_the_plane_are_those_of_parameter_space() -> None:
    section = plane(*models(3))
    places = np.vstack([section.places, np.random.default_rng(0).normal(size=(5, 2))])
    points = torch.stack([section.at(place) for place in places])
    inside = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.testing.assert_allclose(torch.cdist(points, points).numpy(), inside, atol=1e-12)


def test_a_projected_model_is_nearest_at_its_place_and_its_distance_is_pythagorass() -> None:
    """At any place p of the plane, ||w - w(p)||^2 = distance^2 + |place - p|^2. The grid encloses the projection."""
    w1, w2, w3, fourth = models(4)
    three = plane(w1, w2, w3)
    other = 9 * fourth
    section = with_projections(three, [other, w2])
    (place, second) = section.places[4:]
    assert np.allclose(section.places[:4], three.places) and np.allclose(second, three.places[1])
    assert section.distances[1] == pytest.approx(0, abs=1e-12)
    for p in ([0.0, 0.0], list(three.places[2]), [0.3, -0.2]):
        expected = section.distances[0] ** 2 + np.sum((place - np.array(p)) ** 2)
        assert float(other.dist(section.at(p))) ** 2 == pytest.approx(expected, rel=1e-10)
    for axis, coordinate in zip(section.axes, place, strict=True):
        assert axis.min() <= coordinate <= axis.max()


def test_a_planes_grid_has_its_margin_around_two_models() -> None:
    w1, w2, w3 = models(3)
    section = plane(w1, w2, w3, points=15, margin=0.2)
    assert section.shape == (15, 15)
    torch.testing.assert_close(section.point(2, 2), w1, rtol=0, atol=0)
    torch.testing.assert_close(section.point(12, 2), w2, rtol=0, atol=1e-14)
    (length, _), (along, height) = section.places[1:3]
    assert section.at((0, height)).dist(w3) == pytest.approx(abs(along), rel=1e-12)
    assert section.axes[0][0] == pytest.approx(-0.2 * length) and section.axes[1][-1] == pytest.approx(1.2 * height)


def test_circles_stay_circles_in_a_bowls_plane() -> None:
    """With the samples' mean as one of the models the loss depends on the distance from its place alone."""
    low, other, third = (torch.tensor(w).double() for w in ([2.0, 1.0], [5.0, 1.5], [0.0, 7.0]))
    relief = bowl([[1.0, 1.0], [3.0, 1.0]]).over(plane(low, other, third, points=6))
    x, y = np.meshgrid(*relief.axes, indexing="ij")
    np.testing.assert_allclose(relief.loss, 0.5 + (x**2 + y**2) / 2, rtol=1e-12)


def test_models_on_one_line_make_no_plane() -> None:
    a, b = models(2)
    for third in (a, b, 2 * b - a):
        with pytest.raises(ValueError, match="plane: height of w3"):
            plane(a, b, third)
    with pytest.raises(ValueError, match="plane: height of w3"):
        plane(a, a, b)


def test_a_directions_filters_have_the_models_norms_and_biases_keep_still() -> None:
    module = build("cifar_cnn", {}, shape=(3, 16, 16), classes=10, seed=0).double()
    layout = Layout(module)
    w = layout.flatten(module)
    direction = layout.views(filter_normalised(w, layout, seed=5, number=1))
    for name, own in layout.views(w).items():
        if own.dim() == 1:
            assert not direction[name].any()
        else:
            norms = [v.flatten(1).norm(dim=1) for v in (direction[name], own)]
            torch.testing.assert_close(*norms, rtol=1e-14, atol=0)


def test_models_are_compared_along_the_same_draws() -> None:
    """Each filter of a direction is the same unit vector for all models; another seed or number is another one."""
    w, other = models(2)
    first, its = (filter_normalised(v, LAYOUT, seed=1, number=1) for v in (w, other))
    for a, b in zip(LAYOUT.views(first).values(), LAYOUT.views(its).values(), strict=True):
        torch.testing.assert_close(*(nn.functional.normalize(v, dim=-1) for v in (a, b)), rtol=0, atol=1e-14)
    assert torch.equal(first, filter_normalised(w, LAYOUT, seed=1, number=1))
    single = filter_normalised(w.float(), LAYOUT, seed=1, number=1)
    torch.testing.assert_close(single.double(), first, rtol=1e-5, atol=1e-6)
    for seed, number in ((1, 2), (2, 1)):
        assert not torch.allclose(first, filter_normalised(w, LAYOUT, seed, number))


def test_the_middle_of_a_surface_is_its_model_exactly() -> None:
    (w,) = models(1)
    section = surface(w, LAYOUT, points=51)
    assert torch.equal(section.point(25, 25), w) and torch.equal(section.at(section.places[0]), w)
    d1, d2 = (filter_normalised(w, LAYOUT, 0, number) for number in (1, 2))
    torch.testing.assert_close(section.point(0, 50), w - d1 + d2, rtol=0, atol=1e-15)


def test_scaling_a_relu_layer_up_and_the_next_one_down_leaves_the_surface_as_it_is() -> None:
    module = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    layout, world = Layout(module), data()
    w = layout.flatten(module)
    scales = torch.cat([torch.full((32,), 4.0), torch.full((24,), 0.25)]).double()
    assert world.test is not None
    look = Landscape(module, layout, world, world.test, goal(world), Evaluation())
    here, there = (look.over(surface(v, layout, seed=2, points=5)) for v in (w, w * scales))
    np.testing.assert_allclose(here.loss, there.loss, rtol=1e-12)


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_an_interrupted_survey_goes_on_to_the_bytes_of_one_that_was_not(tmp_path: Path, stop: int) -> None:
    section, file, calls = plane(*models(3), points=3), tmp_path / "plane.npz", list[tuple[int, int]]()

    def interrupt(done: int, points: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        landscape().over(section, file, interrupt)
    found = Relief.load(file)
    assert found.done == stop == np.isfinite(found.loss).sum() == np.isfinite(found.error).sum()
    resumed = landscape().over(section, file, lambda done, points: calls.append((done, points)))
    assert calls == [(done, 9) for done in range(stop + 1, 10)]
    assert numbers(resumed) == numbers(landscape().over(section)) == numbers(Relief.load(file))
    assert [path.name for path in tmp_path.iterdir()] == ["plane.npz"]


def test_a_file_of_another_survey_is_refused(tmp_path: Path) -> None:
    ws, file, world = models(4), tmp_path / "plane.npz", data()
    landscape().over(plane(*ws[:3], points=2), file)
    before = file.read_bytes()
    others: list[tuple[Landscape, Section]] = [
        (landscape(), plane(*ws[1:], points=2)),
        (landscape(), plane(*ws[:3], points=3)),
        (landscape(), plane(*ws[:3], points=2, margin=0.3)),
        (landscape(replace(world, test=world.train)), plane(*ws[:3], points=2)),
    ]
    for look, section in others:
        with pytest.raises(ValueError, match="another file"):
            look.over(section, file)
    assert file.read_bytes() == before


def test_a_direction_needs_two_points() -> None:
    with pytest.raises(ValueError, match="points = 1: must be at least 2"):
        line(*models(2), points=1)
