"""What a GPU runs, on whatever device is there: clients side by side, compiled steps, resident samples, processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsash import Uniform
from fedsash.data.federated import FederatedData
from fedsash.data.transform import Transform
from fedsash.engines import LocalEngine
from fedsash.methods import Scaffold
from fedsash.models import build
from fedsash.testing import close
from support.places import ROOT
from support.worlds import SEQUENTIAL, VECTORISED, after, federation, mlp


def images(device: str) -> dict[str, Any]:
    """A federation of augmented images."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (48, 8, 8, 3), dtype=np.uint8), rng.integers(0, 3, 48)
    data = FederatedData.from_arrays(x, y, np.split(np.arange(48), 6), classes=3)
    transform = Transform((0.5,) * 3, (0.2,) * 3, crop=1, flip=True)
    model = build("mlp", {"hidden": [8]}, shape=(3, 8, 8), classes=3, seed=0).double()
    return {"data": replace(data, transform=transform), "model": model, "device": device}


def test_samples_models_and_state_stay_on_the_device(device: str) -> None:
    with federation(**images(device), method=Scaffold(), engine=VECTORISED) as world:
        state = after(world, 1)
        x = world.training_data.train.x
        assert {x.device.type, state.w.device.type, *(v.device.type for v in state.server_state.values())} == {device}
        assert not x.is_floating_point()  # pixels are augmented and normalised there, batch by batch


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(SEQUENTIAL, id="alone"),
        pytest.param(VECTORISED, id="side by side"),
        pytest.param(LocalEngine(), id="auto", marks=pytest.mark.full),
    ],
)
def test_clients_train_on_a_device_as_on_the_cpu(engine: LocalEngine, device: str, cache: Any) -> None:
    expected = after(federation(**images("cpu"), method=Scaffold(), engine=SEQUENTIAL), 3)
    assert close(after(federation(**images(device), method=Scaffold(), engine=engine), 3).w.cpu(), expected.w, 1e-10)


@pytest.mark.slow
def test_compiled_steps_train_on_a_device_as_on_the_cpu(device: str) -> None:
    expected = after(federation(model=mlp(), sampling=Uniform(6), engine=SEQUENTIAL), 3)
    compiled = replace(VECTORISED, block=6, compile=True)
    found = after(federation(model=mlp(), sampling=Uniform(6), engine=compiled, device=device), 3)
    assert close(found.w.cpu(), expected.w, 1e-10)


@pytest.mark.slow
def test_several_processes_train_on_one_device(device: str) -> None:
    program = (
        "from fedsash.testing import after, small_federation; from fedsash.testing.worlds import VECTORISED\n"
        f"w = after(small_federation(engine=VECTORISED, device='{device}'), 5).w; print(*w.tolist())"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", program]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    found = [np.array(one.communicate(timeout=300)[0].split(), dtype=float) for one in both]
    expected = after(federation(engine=SEQUENTIAL), 5).w
    assert all(close(torch.from_numpy(w), expected, 1e-10) for w in found)
