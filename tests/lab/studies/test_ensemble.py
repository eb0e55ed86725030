"""The mean of client models beside the ensemble of their answers: identities, and in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsash.lab.studies.client_models import ClientModels, client_models
from fedsash.lab.studies.ensemble import EnsembleStudy, Group
from fedsash.lab.studies.opened import OpenRun
from support.studies import SAVED, analysis, fedsash, recorded, refused


def test_the_mean_of_all_clients_is_the_next_model_of_fedavg(opened: OpenRun) -> None:
    found = EnsembleStudy(rounds=(3, 5), orders=2).measure([opened])
    for i, round in enumerate(found["rounds"]):
        assert found["mean"][i][-1] == pytest.approx(recorded(opened.folder, "model", round + 1)[1], abs=1e-12)


def test_one_model_is_its_own_mean_and_its_own_ensemble(opened: OpenRun) -> None:
    found = EnsembleStudy(rounds=(3,), orders=3).measure([opened])
    assert found["mean"][0][0] == found["ensemble"][0][0]
    assert found["gap"][0][0] == found["distance"][0][0] == 0
    assert found["gap"][0][-1] > 0 and len(found["gap"][0]) == 3


def test_half_the_distance_is_a_quarter_of_the_gap(opened: OpenRun) -> None:
    """IMA's Lemma 1: the term of first order is 0 at the weighted mean."""
    trained = client_models(opened.federation, opened.state(3))
    mean = trained.mean

    def gap(scale: float) -> tuple[float, float]:
        models = ClientModels(trained.ids, mean + scale * (trained.w - mean), trained.p)
        _, _, apart, distance = Group(opened, models, "test", None).numbers(range(len(trained.ids)))
        return apart, distance

    (gap_1, far), (gap_2, near) = gap(0.5), gap(0.25)
    assert near == pytest.approx(far / 2, rel=1e-4)
    assert gap_2 == pytest.approx(gap_1 / 4, rel=0.1)


def test_the_weights_of_some_clients_are_their_share_of_these_clients_samples(opened: OpenRun) -> None:
    """Twice the same model counts as one: the mean of a group does not depend on how its weight is cut."""
    trained = client_models(opened.federation, opened.state(3))
    cut = replace(trained, w=trained.w[[0, 0, 1]], p=torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64))
    whole = replace(trained, w=trained.w[[0, 1]], p=torch.tensor([0.3, 0.7], dtype=torch.float64))
    a, b = Group(opened, cut, "test", 100).numbers([0, 1, 2]), Group(opened, whole, "test", 100).numbers([0, 1])
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_the_command_writes_what_it_found_for_every_saved_round(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedsash("ensemble", run, "--orders", 2, "--samples", 50, "--name", "e") == 0
    assert "CKA" in capsys.readouterr().out
    found = analysis(run, "e")
    assert found["rounds"] == SAVED and all(0 < cka < 1 for cka in found["cka"])
    assert all(len(found[name][0]) == 3 for name in ("mean", "ensemble", "gap", "distance"))
    assert (run / "analyses" / "e.png").exists()
    assert "--orders = 0: must be" in refused(capsys, "ensemble", run, "--orders", 0)
