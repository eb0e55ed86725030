"""A small federation that learns numbers: its deciding metric, the RMSE, should be low."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from fedsash.averages import EMA, Window
from fedsash.client import LocalTraining
from fedsash.data import FederatedData
from fedsash.evaluation import Evaluation
from fedsash.server.federation import Federation
from fedsash.tasks import Regression
from support.worlds import SIZES, federation

SLOPES = np.array([1.0, -2.0, 0.5, 0.0])


def numbers(test: bool = True, seed: int = 0) -> FederatedData:
    """Noisy linear numbers: six clients, and a test set of 20 samples unless `test` is False."""
    rng, n = np.random.default_rng(seed), sum(SIZES)
    x = rng.normal(size=(n + 20, 4))
    y = x @ SLOPES + 0.3 * rng.normal(size=n + 20)
    clients = np.split(np.arange(n), np.cumsum(SIZES)[:-1])
    held = (x[n:], y[n:]) if test else None
    return FederatedData.from_arrays(x[:n], y[:n], clients, test=held, task=Regression())


def regression(test: bool = True, **settings: Any) -> Federation:
    """Linear regression with large steps, so that its model moves back and forth, evaluated after every round."""
    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "model": nn.Linear(4, 1).double(),
        "data": numbers(test),
        "local": LocalTraining(lr=0.2, batch=5, epochs=2),
        "averages": {"w": Window(3), "ema": EMA(0.7)},
        "evaluation": Evaluation(every=1, last=3, held_out=0.3, target=0.5),
    }
    return federation(**defaults | settings)
