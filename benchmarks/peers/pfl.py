"""pfl-research: its simulated backend with two workers of one thread, which torchrun starts, as its benchmarks do.

A worker holds one model. Users of different sizes are dealt to workers by size. FedAvg weights by samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Score, Weighted
from pfl.model.pytorch import PyTorchModel

from .clock import Clock
from .modules import loss, module, parameters
from .works import PER_ROUND, Given


def with_loss(net: torch.nn.Module) -> torch.nn.Module:
    """The two functions that pfl asks of a module."""
    net.loss = lambda x, y, eval=False: loss(net(x), y)
    net.metrics = lambda x, y, eval=False: {"loss": Weighted(loss(net(x), y).item() * len(x), len(x))}
    return net


def run(given: Given, clock: Clock, seed: int) -> None:
    np.random.seed(seed)
    work = given.work
    net = with_loss(module(given))

    def user(number: int) -> PyTorchTensorDataset:
        x, y = given.client(number)
        order = np.random.permutation(len(x))
        return PyTorchTensorDataset((torch.from_numpy(x[order]), torch.from_numpy(y[order])))

    class Told(TrainingProcessCallback):
        def after_central_iteration(self, metrics: Score, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
            if distributed.global_rank:
                return False, Score()
            found = metrics.to_simple_dict()
            users, size = (found[f"Train population | number of {of}"] for of in ("devices", "data points"))
            clock.round(round(users * size) * work.epochs, parameters(net))
            return False, Score()

    sizes = dict(enumerate(given.clients[:, 1].tolist()))
    weights = sizes if len(set(sizes.values())) > 1 else None
    users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(sizes)), weights)
    FederatedAveraging().run(
        NNAlgorithmParams(10**6, 10**6, PER_ROUND, None),
        SimulatedBackend(users, None, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(
            net,
            lambda p, lr: torch.optim.SGD([q for q in p if q.requires_grad], lr, momentum=work.momentum),
            torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1.0),
        ),
        NNTrainHyperParams(work.batch, work.epochs, work.lr),
        callbacks=[Told()],
        send_metrics_to_platform=False,
    )
