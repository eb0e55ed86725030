"""FedWindow's bound: its terms, its constants by closed forms, and the study on runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.client import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.lab.studies.bound import Constants, batch_noise, bound, training_loss
from fedsash.methods.sampling import Uniform
from fedsash.network.learning import gradient_norm
from fedsash.runs.records import Records
from fedsash.testing import quadratic_federation
from support.studies import ENGINE, analysis, fedsash, refused

WINDOW = f"""
rounds = 6
[partition]
name = "iid"
clients = 5
[model]
name = "mlp"
hidden = []
[local]
batch = 40
steps = 2
[evaluation]
every = 1
{ENGINE}
[network]
gradients = true
[scheduler]
name = "fedwindow"
window = 2
"""


def test_the_terms_are_those_of_equation_17() -> None:
    """L = 2, sigma_l^2 = 3, F(w_0) - F* = 4; eta = 0.5, E = 8, W = 2 and T = 10; sigma_g^2 is 1/4 of sigma_l^2."""
    terms = bound(Constants(2.0, 3.0, 4.0), rate=0.5, steps=8, size=2, trips=10)
    assert terms.tolist() == [4 / (0.5 * 8 * 10), 2 * 0.5 * 8 * 3 / 4, 2 * 0.5 * 8 * (3 / 4) / 8]


@pytest.mark.parametrize(
    ("local", "batches", "noises"),
    [
        ({"batch": 1}, 4, {5.0}),
        ({"batch": 2}, 2, {0.0, 1.0, 4.0}),
        ({"batch": 3}, 1, {1.0, 9.0}),
        ({"batch": 3}, 2, {1.0, 5.0, 9.0}),  # the last batches of two passes
        ({"batch": 3, "drop_last": True}, 1, {round(1 / 9, 9), 1.0}),
        ({"batch": 3, "steps": 1}, 1, {round(1 / 9, 9), 1.0}),  # which takes no last batch
        ({"batch": 4}, 10, {0.0}),
        ({"batch": "full"}, 10, {0.0}),
    ],
)
def test_the_noise_is_the_variance_of_the_batches_means(
    local: dict[str, Any], batches: int, noises: set[float]
) -> None:
    """A client's loss is the mean of (x - w)^2/2 over x = 0, 2, 4, 6, so a batch's gradient is w less its mean.

    Two batches of two have the means 1 and 5, 2 and 4, or both 3: they are 2, 1 or 0 away from the mean of all. A batch
    of one is 3 or 1 away, and that of the three others a third of it.
    """
    data = FederatedData.from_arrays(np.array([[0.0], [2.0], [4.0], [6.0]]), [0] * 4, [range(4)], classes=1)
    world = quadratic_federation([1.0], [0.0], data=data, local=LocalTraining(**local))
    w = torch.zeros(1, dtype=torch.float64)
    assert {round(batch_noise(world, w, 0, batches, seed), 9) for seed in range(40)} == noises


def test_a_sample_that_two_clients_hold_counts_twice_in_the_training_loss() -> None:
    """f(w) is (x - w)^2/2 for x = 0 and 6, and the second sample has two clients: at w = 0 its gradient is -4."""
    data = FederatedData.from_arrays(np.array([[0.0], [6.0]]), [0, 0], [[0, 1], [1]], classes=1)
    world = quadratic_federation([1.0], [0.0], data=data, sampling=Uniform(2))
    w = torch.zeros(1, dtype=torch.float64)
    loss = training_loss(world)
    assert (float(loss.loss(w)), float(loss.gradient(w))) == (12.0, -4.0)
    norm = gradient_norm(world.module, world.layout, world.training_data, world.goal.loss, 500)
    assert float(loss.gradient(w).norm()) == norm(w)


def test_the_study_of_two_runs_has_their_norms_and_a_bound_above_its_noise(tmp_path: Path) -> None:
    (tmp_path / "window.toml").write_text(WINDOW)
    runs = [tmp_path / "a", tmp_path / "b"]
    for seed, run in enumerate(runs):
        assert fedsash("network", tmp_path / "window.toml", "--out", run, "--set", f"seed={seed}", "--no-progress") == 0
    assert fedsash("bound", *runs, "--samples", "200", "--batches", 2, "--name", "bound") == 0
    found = analysis(runs[0], "bound")
    norms = [[row["gradient_norm"] for row in Records(run).load().rows() if "gradient_norm" in row] for run in runs]
    assert found["trips"] == [1, 2, 3, 4, 5, 6] and found["runs"] == 2
    assert found["squared_norms"][1:] == pytest.approx(np.square(norms).mean(0)[:-1])
    assert found["mean"] == pytest.approx([np.mean(found["squared_norms"][:t]) for t in found["trips"]])
    known = Constants(**found["constants"])
    terms = np.array([bound(known, found["rate"], found["steps"], 2, t) for t in found["trips"]])
    assert np.allclose(np.transpose(list(found["terms"].values())), terms, rtol=1e-12)
    assert known.smoothness > 0 and known.noise > 0 and found["steps"] == 2


def test_runs_of_other_settings_have_no_bound_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "window.toml").write_text(WINDOW)
    runs = [tmp_path / "a", tmp_path / "b"]
    for steps, run in enumerate(runs, 1):
        more = ["--set", f"local.steps={steps}", "--set", f"seed={steps}"]
        assert fedsash("network", tmp_path / "window.toml", "--out", run, *more, "--no-progress") == 0
    said = refused(capsys, "bound", *runs)
    assert f"{runs[1]}: has other settings than {runs[0]}: local.steps; only seeds may differ" in said


def test_a_run_that_is_not_of_fedwindow_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the bound is for the scheduler fedwindow with a constant window" in refused(capsys, "bound", run)
