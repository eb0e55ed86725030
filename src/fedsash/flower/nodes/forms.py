"""What clients may send: the names, shapes and types of uploads, from the server's own knowledge of the method."""

from __future__ import annotations

from dataclasses import replace

import torch

from ...basics.arrays import Vectors
from ...exchange import Request
from ...executors import Training
from ...methods import LocalRun, WholeMethod
from .wire import Form, Forms


def of_uploads(training: Training, request: Request, clients: int) -> Forms:
    """The forms of the uploads `[clients, ...]` to a request to train, or to a probe.

    The method makes them of a client that has not moved, so no reply of a client decides what is right.
    """
    sharing, method = training.sharing, training.method
    sent = request.sent
    head = sharing.common_of(sent)
    one = head.new_ones(1, 1)
    own = training.local.client_state(WholeMethod(method, sharing), sent)
    run = LocalRun(
        round=request.round,
        w=head.expand(1, -1).clone(),
        sent=head,
        **dict.fromkeys(("size", "steps", "per_epoch", "samples", "lr_sum"), one),
        server_state=request.server_state,
        client_state={name: value.unsqueeze(0) for name, value in own.items()},
        round_state={},
        layout=sharing.common,
        full_grad=torch.zeros_like,
    )
    if request.job == "probe":
        return _rows(method.probe(run), clients)
    run = replace(run, round_state=method.round_state(run))
    upload, _ = method.upload(run)
    return _rows(upload | sharing.statistics_upload(sharing.to_clients(sent).unsqueeze(0), sent), clients)


def of_states(training: Training, request: Request, clients: int) -> Forms:
    """The forms of the clients' new state `[clients, ...]`, if it travels."""
    if request.job != "train" or request.client_state is None:
        return {}
    own = training.local.client_state(WholeMethod(training.method, training.sharing), request.sent)
    return _rows({name: value.unsqueeze(0) for name, value in own.items()}, clients)


def _rows(vectors: Vectors, clients: int) -> Forms:
    return {name: Form((clients, *value.shape[1:]), value.dtype) for name, value in vectors.items()}
