"""BatchNorm and kept moments: each client's optimiser goes on, whatever part of the model stays with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedsash.client import SGD, AdamW, LocalTraining, Optimiser
from fedsash.runs.checkpoints import load, save
from fedsash.testing import close, identical
from support.by_default import rotated
from support.norms import alone, batch_norm_model, centrally_trained, with_norm
from support.worlds import ENGINES, VECTORISED, after, federation

KINDS = ["average", "local", "local_norm"]
EPSILON = 1e-3
"""A bias before BatchNorm has a gradient of rounding errors only, which AdamW's usual epsilon would turn into steps."""

UNEQUAL = LocalTraining(lr=0.01, batch=5, epochs=(1, 3), optimiser=AdamW(epsilon=EPSILON), keep_moments=True)


@pytest.mark.parametrize("buffers, engine", rotated(KINDS, ENGINES, turns=2))
def test_one_client_is_central_training_by_an_optimiser_that_goes_on(buffers: Any, engine: str) -> None:
    model = batch_norm_model()
    local = LocalTraining(lr=0.01, batch="full", steps=4, optimiser=AdamW(epsilon=EPSILON), keep_moments=True)
    world = alone(model, local=local, buffers=buffers, engine=ENGINES[engine])
    state = after(world, 3)
    assert state.client_state["adamw_m"].shape == (1, world.layout.trained)
    if buffers != "average":
        state.w[world.sharing.own] = state.client_state["own"][0]
    trained = world.module_of(state.w).state_dict()
    plain = centrally_trained(
        model, world, 12, 12, lambda parameters: torch.optim.AdamW(parameters, lr=0.01, eps=EPSILON)
    )
    for name, value in plain.state_dict().items():
        assert close(trained[name].double(), value.double(), 1e-11), name


@pytest.mark.parametrize("buffers, engine", rotated(KINDS, ["vectorised", "workers"], turns=2))
def test_every_engine_keeps_the_same_moments_for_unequal_amounts(buffers: Any, engine: str) -> None:
    one, other = (
        after(with_norm(buffers=buffers, local=UNEQUAL, engine=ENGINES[e]), 3) for e in ("sequential", engine)
    )
    assert close(other.w, one.w, 1e-11)
    assert one.client_state.keys() == other.client_state.keys()
    for name, rows in one.client_state.items():
        assert close(other.client_state[name], rows, 1e-11), name


@pytest.mark.parametrize("buffers", rotated(["local", "average", "local_norm"], turns=1))
def test_a_resumed_run_goes_on_with_all_of_them_to_the_byte(buffers: Any, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"buffers": buffers, "local": UNEQUAL}
    unbroken = after(with_norm(**settings), 4)
    save(after(with_norm(**settings), 2), tmp_path)
    world = with_norm(**settings)
    assert identical(after(world, 2, load(tmp_path / "00000002", world.start())), unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", [AdamW(), SGD(momentum=0.5)], ids=lambda it: type(it).__name__)
def test_compiled_steps_keep_moments_too(optimiser: Optimiser) -> None:
    """PyTorch's compiler had a bug for how they were kept."""
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3)).double()
    local = LocalTraining(lr=0.01, batch=10, epochs=(1, 3), optimiser=optimiser, keep_moments=True)
    compiled = after(federation(model=model, local=local, engine=replace(VECTORISED, compile=True)), 3)
    assert close(compiled, after(federation(model=model, local=local), 3), 1e-12)
