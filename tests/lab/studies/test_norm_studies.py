"""Studies of models with BatchNorm: distances are those of what is learned, not of the counts of batches."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedsash import Checkpoint, run
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.decomposition import DecompositionStudy, _over_clients
from fedsash.lab.studies.landscape import Landscape, line, plane
from fedsash.lab.studies.opened import open_run
from fedsash.lab.studies.variance import _correlation
from fedsash.lab.studies.window import distances
from support.norms import with_norm
from support.studies import fedsash, refused
from support.worlds import after


def test_distances_are_of_parameters(tmp_path: Path) -> None:
    world = with_norm(buffers="average")
    run(world, 4, out=tmp_path, progress=False, checkpoint=Checkpoint(keep=(2,)))
    opened = open_run(tmp_path, federation=world)
    layout = opened.federation.layout
    assert layout.trained < layout.size
    models = client_models(opened.federation, opened.state(2))
    far = (models.w - models.mean)[:, : layout.trained].norm(dim=1)
    found = DecompositionStudy(rounds=(2,)).measure([opened])
    assert found["locality_max"] == [pytest.approx(float(far.max()))]
    assert found["locality_mean"] == [pytest.approx(float(far.mean()))]


def test_a_window_and_a_plane_measure_the_first_entries_only() -> None:
    learned, counts = torch.randn(3, 4, dtype=torch.float64), 1000 * torch.randn(3, 2, dtype=torch.float64)
    whole: Tensor = torch.cat([learned, counts], dim=1)
    assert torch.equal(distances(dict(enumerate(whole)), 4)[1], distances(dict(enumerate(learned)))[1])
    section, right = plane(*whole, entries=4), plane(*learned)
    assert section.places == pytest.approx(right.places)
    assert torch.allclose(section.at(section.places[2]), whole[2])


def test_at_a_point_of_a_line_the_statistics_are_those_of_the_training_samples() -> None:
    """Its own would be a mix of the models', with negative variances beyond them. All samples are one batch."""
    world = with_norm(buffers="average")
    data = world.training_data
    models = [after(world, rounds).w for rounds in (1, 3)]
    at = line(*models, points=5, margin=20.0)
    landscape = Landscape(world.module, world.layout, data, data.train, world.goal, world.evaluation)
    for i in range(5):
        module = world.layout.copied(world.module, at.point(i)).train()
        module[1].momentum = 1.0
        module(data.transform.inputs(data.train.x, world.layout.dtype))
        expected = landscape.at(world.layout.flatten(module))
        assert landscape.between(at.point(i)) == pytest.approx(expected, rel=1e-12)
        assert math.isfinite(expected[0])


def test_who_holds_none_of_the_samples_is_in_no_mean() -> None:
    values = torch.tensor([0.0, 0.8, 0.6])
    assert _over_clients(values, torch.tensor([False, True, True])) == pytest.approx(0.7)
    assert _over_clients(values, torch.zeros(3, dtype=torch.bool)) is None


def test_a_constant_up_to_rounding_has_no_correlation() -> None:
    noisy = torch.full((5,), 0.8, dtype=torch.float64) + 1e-16 * torch.arange(5).double()
    assert _correlation(noisy, torch.randn(5, dtype=torch.float64)) is None


BOUND = """
rounds = 4
partition = { name = "iid", clients = 5 }
model = { name = "mlp", hidden = [] }
local = { batch = 40, steps = 2 }
evaluation = { every = 1 }
engine = { kind = "sequential", workers = 1 }
network = { gradients = true }
scheduler = { name = "fedwindow", window = 2 }
"""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("network.gradients=false", "has no gradient norms: set network.gradients"),
        ("method={name='fedprox', mu=20.0}", "the bound is for clients that follow the plain gradient"),
    ],
)
def test_the_bound_refuses_what_it_is_not_about(
    change: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.toml").write_text(BOUND)
    assert fedsash("network", tmp_path / "b.toml", "--out", tmp_path / "r", "--no-progress", "--set", change) == 0
    assert line in refused(capsys, "bound", tmp_path / "r")
