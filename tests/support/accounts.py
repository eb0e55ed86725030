"""Runs of the naive account for tests: a small world, and the settings with which it is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from fedsash.client import LocalTraining
from fedsash.server.federation import Federation
from support.naive import Array, Net, run
from support.worlds import federation

STEP: dict[str, Any] = {"momentum": 0.8, "weight_decay": 0.02}
CLIENT: dict[str, Any] = {"lr": 0.1} | STEP
TRAINING: dict[str, Any] = CLIENT | {"decay": 0.9, "server_lr": 0.7}
PLAIN: dict[str, Any] = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "decay": 1.0, "server_lr": 1.0}
FA: dict[str, Any] = {"lam": 0.3, "momentum": 0.6, "calibration": 0.01, "anchors_from": 0, "calibrate_from": 0}
ADABEST: dict[str, Any] = {"mu": 0.05, "beta": 0.6, "variant": "paper"}
UNIFORM: dict[str, Any] = {"weighting": "uniform"}
SAMPLES: dict[str, Any] = {"weighting": "samples"}


def world(client: LocalTraining | None = None, **settings: Any) -> Federation:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return federation(model=model, local=client or LocalTraining(batch=5, epochs=3), **settings)


def naive(kind: str, rounds: int = 5, f: Federation | None = None, **options: Any) -> dict[str, Array]:
    """The naive account of a run with momentum, decay, a server rate and partial participation."""
    return run(f or world(), rounds, kind, options, **TRAINING)


def same(a: dict[str, Array], b: dict[str, Array], atol: float = 1e-13) -> None:
    np.testing.assert_allclose(a["w"], b["w"], rtol=0, atol=atol)


def net(f: Federation) -> Net:
    return Net(f.data.train.x.numpy(), f.data.train.y.numpy())
