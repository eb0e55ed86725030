"""Weights of checkpoints: an EMA, and the decays for which a mean stands in."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedsash.averages import BEMA
from fedsash.averages.checkpoints import merge_checkpoints
from fedsash.averages.checkpoints.weights import DECAYS, bema_weights, check_weights, decay_weights, ema_weights, shares
from fedsash.settings.errors import RunError, SettingError
from support.trajectories import final, trajectory


def test_the_weights_of_an_ema_shrink_by_d_from_the_newest_on() -> None:
    weights = ema_weights(0.5, 5)
    assert weights == [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]


@pytest.mark.parametrize("shape", DECAYS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_mean_equals_steps_whose_rates_decay(shape: str, n: int) -> None:
    """With fixed updates g: sum_j c_j theta_j = theta_0 + sum_i w_i g_i, where theta_j = theta_0 + g_1 + ... + g_j."""
    updates = [math.sin(i) for i in range(1, n)]
    models = [2.5]
    for update in updates:
        models.append(models[-1] + update)
    weights = decay_weights(shape, n) or [1 / n] * n
    decays = {
        "linear": lambda s: 1 - s,
        "cosine": lambda s: (1 + math.cos(math.pi * s)) / 2,
        "1-sqrt": lambda s: 1 - math.sqrt(s),
    }
    decayed = 2.5 + math.fsum(decays[shape](i / n) * updates[i - 1] for i in range(1, n))
    assert math.isclose(math.fsum(c * m for c, m in zip(weights, models, strict=True)), decayed, rel_tol=1e-13)
    assert math.isclose(math.fsum(weights), 1, rel_tol=1e-15)


def test_weights_that_make_no_mean_are_refused() -> None:
    with pytest.raises(SettingError, match="must be above 0 and below 1"):
        ema_weights(1.0, 3)
    with pytest.raises(SettingError, match="must be 'linear' or 'cosine' or '1-sqrt'"):
        decay_weights("square", 3)
    with pytest.raises(SettingError, match="must be 3 numbers"):
        check_weights([1.0], 3)
    with pytest.raises(SettingError, match="must have a sum above 0"):
        check_weights([1.0, -1.0], 2)
    with pytest.raises(SettingError, match="must have a sum above 0"):
        check_weights([1.0, -2.0], 2)
    with pytest.raises(SettingError, match="must be finite"):
        check_weights([1.0, math.nan], 2)


def test_shares_are_exact_also_of_weights_whose_sum_no_float_holds() -> None:
    largest = sys.float_info.max
    check_weights([largest] * 3, 3)
    assert shares([largest] * 3, 3) == shares(None, 3) == [Fraction(1, 3)] * 3
    with pytest.raises(SettingError, match="must be less than 1,000,000 times their sum"):
        check_weights([largest, -largest, 1.0], 3)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ema": "0.9"}, "ema = '0.9': must be above 0 and below 1"),
        ({"weights": ["1", "2"]}, "weights = .*: must be numbers"),
        ({"bema": 0.5, "initial": "m0.safetensors"}, "bema = 0.5: must be a BEMA"),
        ({"every": 1.5}, "every = 1.5: must be a whole number"),
        ({"mode": "max"}, "mode = 'max': needs best"),
        ({"scores": "scores.json"}, "scores = 'scores.json': needs best"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(2):
        save_file({"w": torch.ones(1) * i}, tmp_path / f"m{i}.safetensors")
    with pytest.raises(SettingError, match=line):
        merge_checkpoints(["m0.safetensors", "m1.safetensors"], "mean.safetensors", **settings)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("bema", [BEMA(), BEMA(rho=1.0, gamma=0.3, least=0.25), BEMA(eta=1000.0), BEMA(kappa=0.0)])
def test_the_weights_of_bema_give_what_the_average_gives(bema: BEMA, every: int) -> None:
    models = trajectory(24)
    steps = range(every, len(models), every)
    weights = torch.tensor(bema_weights(bema, steps), dtype=torch.float64)
    taken = torch.stack([models[0], *(models[step] for step in steps)])
    in_a_run = BEMA(bema.kappa, bema.eta, bema.rho, bema.gamma, least=bema.least, every=every)
    torch.testing.assert_close(weights @ taken, final(in_a_run, models), rtol=1e-13, atol=1e-15)
    assert math.isclose(weights.sum(), 1, rel_tol=1e-14)


def save_steps(folder: Path, rows: Tensor, steps: list[int]) -> None:
    """The initial model, and folders with a trainer's states."""
    folder.mkdir()
    torch.save({"w": rows[0]}, folder / "initial.pt")
    for row, step in zip(rows[1:], steps, strict=True):
        place = folder / f"checkpoint-{step}"
        place.mkdir()
        torch.save({"w": row}, place / "pytorch_model.bin")
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def test_bema_of_files_is_one_correctly_rounded_combination(tmp_path: Path) -> None:
    rows = torch.randn(4, 200, generator=torch.Generator().manual_seed(3)).bfloat16()
    steps = [500, 1000, 1500]
    save_steps(tmp_path / "in", rows, steps)
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA(), initial=tmp_path / "in" / "initial.pt")
    assert merged.steps == (None, 500, 1000, 1500)
    weights = [Fraction(weight) for weight in bema_weights(BEMA(), steps)]
    assert max(weights) > 0.2
    found = torch.load(tmp_path / "mean" / "pytorch_model.bin", weights_only=True)["w"]
    below = torch.nextafter(found, torch.full_like(found, -math.inf))
    above = torch.nextafter(found, torch.full_like(found, math.inf))
    for column, lower, middle, upper in zip(rows.T.tolist(), below, found, above, strict=True):
        exact = sum((w * Fraction(x) for w, x in zip(weights, column, strict=True)), Fraction()) / sum(weights)
        distances = [abs(Fraction(float(number)) - exact) for number in (lower, middle, upper)]
        assert min(distances) == distances[1]


def test_bema_needs_steps_and_an_initial_model(tmp_path: Path) -> None:
    rows = torch.randn(3, 5)
    save_steps(tmp_path / "in", rows, [1, 2])
    initial = tmp_path / "in" / "initial.pt"
    with pytest.raises(SettingError, match="bema needs it"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA())
    with pytest.raises(SettingError, match="belongs to bema"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean", initial=initial)
    with pytest.raises(RunError, match="must be the one model"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA(), initial=tmp_path / "in")
    with pytest.raises(SettingError, match="must be chosen in one way"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA(), initial=initial, ema=0.5)
    with pytest.raises(SettingError, match="each checkpoint is taken"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA(every=2), initial=initial)
    (tmp_path / "in" / "checkpoint-2" / "trainer_state.json").unlink()
    with pytest.raises(RunError, match="does not say its step, which BEMA needs"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA(), initial=initial)
    (tmp_path / "in" / "checkpoint-2").rename(tmp_path / "in" / "step-2")
    merge_checkpoints(tmp_path / "in", tmp_path / "mean", bema=BEMA(), initial=initial)


def test_with_a_negative_weight_the_statistics_of_batchnorm_are_the_newests(tmp_path: Path) -> None:
    layers = [nn.BatchNorm1d(3).double() for _ in range(2)]
    for step, layer in enumerate(layers):
        assert layer.running_var is not None
        layer.running_var.fill_(0.02 / (step + 1))
        nn.init.constant_(layer.weight, step + 1.0)
        torch.save(nn.Sequential(layer).state_dict(), tmp_path / f"m{step}.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.pt", weights=[-2, 3])
    mean = torch.load(merged.out, weights_only=True)
    assert torch.equal(mean["0.running_var"], layers[1].state_dict()["running_var"])
    assert torch.equal(mean["0.weight"], torch.full((3,), 4.0, dtype=torch.float64))
    assert "statistics are the newest's, since a negative weight" in merged.notes[0]
