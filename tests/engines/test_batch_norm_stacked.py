"""BatchNorm in stacked clients: batches without a real sample, and inputs of 16 bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedsash.client import LocalTraining
from fedsash.engines.batch_norm import RealSamples
from fedsash.methods.sampling import Uniform
from fedsash.testing import close
from support.norms import with_norm
from support.worlds import ENGINES, data

UNEQUAL = (8, 8, 40)
REAL = torch.arange(40) < 32


def deep(depth: int) -> nn.Module:
    """So many layers with BatchNorm, from start values that let activations grow with anything that does not centre."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(4, 16)]
    for _ in range(depth):
        layers += [nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16)]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return nn.Sequential(*layers, nn.Linear(16, 3))


@pytest.mark.parametrize("dtype", [pytest.param(torch.float64, marks=pytest.mark.full), torch.float32])
def test_clients_that_have_finished_are_not_lost_in_a_deep_network(dtype: torch.dtype) -> None:
    """In float32 their batches without a sample once grew until they overflowed, and their models were refused."""
    models = {}
    for engine in ("sequential", "vectorised"):
        settings: dict[str, Any] = {"model": deep(16).to(dtype), "data": data(UNEQUAL), "averages": {}}
        settings |= {"sampling": Uniform(3)}
        with with_norm(**settings, local=LocalTraining(lr=0.01, batch=8), engine=ENGINES[engine]) as world:
            state, report = world.round(world.start())
        assert not report.refused
        models[engine] = state.w
    if dtype == torch.float64:
        assert close(models["vectorised"], models["sequential"], 1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mean", [0.0, 30.0])
def test_statistics_of_16_bit_inputs_have_32(dtype: torch.dtype, mean: float) -> None:
    """As PyTorch's own; the padded samples, which are far away, do not count."""
    torch.manual_seed(0)
    x = (torch.randn(40, 5, 4) + mean).to(dtype)
    x[~REAL] = 1000.0
    found, right = ((torch.zeros(5), torch.ones(5)) for _ in range(2))
    with RealSamples(REAL):
        output = F.batch_norm(x, *found, None, None, True)
    expected = F.batch_norm(x[REAL].float(), *right, None, None, True)
    assert output.dtype == dtype
    torch.testing.assert_close(output[REAL].float(), expected, rtol=torch.finfo(dtype).eps, atol=1e-6)
    for mine, its in zip(found, right, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)


def test_instance_norm_follows_its_statistics_in_32_bits_too() -> None:
    torch.manual_seed(0)
    x = (torch.randn(40, 5, 9) + 30).to(torch.bfloat16)
    found, right = ((torch.zeros(5), torch.ones(5)) for _ in range(2))
    with RealSamples(REAL):
        F.instance_norm(x, *found, None, None, True)
    F.instance_norm(x[REAL].float(), *right, None, None, True)
    for mine, its in zip(found, right, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)
