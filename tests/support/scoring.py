"""Evaluators for tests, and clients that score themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.client import LocalTraining
from fedsash.client.messages import Answers, Request
from fedsash.data.federated import FederatedData
from fedsash.engines import ClientWork, Training
from fedsash.evaluation import Evaluation, Goal, Scorer
from fedsash.methods import FedAvg, WeightedMean
from fedsash.server.evaluator import Ask, Evaluator
from fedsash.tasks import Loss
from fedsash.vector.layout import Layout
from fedsash.vector.sharing import Sharing


def goal(data: FederatedData, loss: Loss | None = None, **metrics: Any) -> Goal:
    """The goal of these data's task, with more metrics."""
    return Goal.of(data.problem.task, loss, metrics)


def evaluator(data: FederatedData, module: nn.Module, loss: Loss | None = None, **settings: Any) -> Evaluator:
    """An evaluator of these data's test set and clients."""
    evaluation = Evaluation(**settings)
    scorer = Scorer(module, Layout(module), goal(data, loss), data.problem, evaluation.batch)
    return Evaluator(scorer, len(data.clients), evaluation.client_splits(bool(data.held)))


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of classification, one number a sample."""
    return F.cross_entropy(output, y, reduction="none")


def unasked(request: Request) -> Answers:
    """Clients that nobody is to ask."""
    raise AssertionError("no client is to be asked")
    yield


def asking(data: FederatedData, module: nn.Module, loss: Loss | None = None) -> Ask:
    """Clients whose trainer answers one by one, each with a batch of its own."""
    everything = Evaluation(clients=True, client_test=bool(data.client_test))
    training = Training(
        module=module,
        problem=data.problem,
        goal=goal(data, loss),
        method=FedAvg(),
        local=LocalTraining(),
        aggregation=WeightedMean(),
        sharing=Sharing.of(module),
        seed=0,
        batch=500,
        asked=everything.client_splits(bool(data.held)),
        fine_tuning=None,
        sample=(),
    )
    trainer = ClientWork(training, data).trainer()

    def ask(request: Request) -> Answers:
        for place in range(len(request.ids)):
            yield trainer.answer(request.only(slice(place, place + 1)), np.array([place]))

    return ask
