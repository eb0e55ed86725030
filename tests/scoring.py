"""Evaluators for tests, and clients that score themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from fedsash.aggregation import Mean
from fedsash.data.federated import FederatedData
from fedsash.data.tasks import Loss
from fedsash.engines import Training, Work
from fedsash.evaluation import Ask, Evaluation, Evaluator, Scorer
from fedsash.exchange import Answer, Request
from fedsash.local import Client
from fedsash.methods import FedAvg


def evaluator(data: FederatedData, module: nn.Module, loss: Loss, **settings: Any) -> Evaluator:
    """An evaluator of these data's test set and clients."""
    evaluation = Evaluation(**settings)
    scorer = Scorer(module, loss, data.problem, evaluation.batch)
    return Evaluator(scorer, data.problem, len(data.clients), at_clients=evaluation.clients, held=bool(data.held))


def unasked(request: Request) -> Iterator[Answer]:
    """Clients that nobody is to ask."""
    raise AssertionError("no client is to be asked")


def asking(data: FederatedData, module: nn.Module, loss: Loss) -> Ask:
    """Clients whose trainer answers one by one, each with a batch of its own."""
    training = Training(module, data.problem, loss, FedAvg(), Client(), Mean(), seed=0, batch=500, sample=())
    trainer = Work(training, data).trainer(False, "contiguous")

    def ask(request: Request) -> Iterator[Answer]:
        for place in range(len(request.ids)):
            yield trainer.answer(request.only(slice(place, place + 1)), np.array([place]))

    return ask
