"""Uploads and client state with the names, shapes and types of a client's, made without training a client."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..client.messages import Request
from ..methods import LocalRun
from ..vector.spaces import ClientState, Uploaded, WholeModel
from .training import Training


def upload_like(training: Training, request: Request) -> Uploaded:
    """The upload `[1, ...]` of a client that has not moved, to a request to train or to a probe."""
    sharing = training.sharing
    method = training.method
    sent = request.sent
    head = sharing.common_of(sent)
    one = head.new_ones(1, 1)
    run = LocalRun(
        round=request.round,
        w=head.expand(1, -1).clone(),
        sent=head,
        size=one,
        steps=one,
        per_epoch=one,
        samples=one,
        lr_sum=one,
        server_state=request.server_state,
        client_state=training.memory.split(state_like(training, request)).method,
        round_state={},
        layout=sharing.common,
        full_grad=torch.zeros_like,
        reach=lambda: one,
    )
    if request.job == "probe":
        return Uploaded(method.probe(run))
    after = replace(run, round_state=method.round_state(run))
    upload, _ = method.upload(after)
    return Uploaded(upload | sharing.statistics_upload(WholeModel(sent.unsqueeze(0)), sent))


def state_like(training: Training, request: Request) -> ClientState:
    """The client state `[1, ...]` of a client before its first round."""
    first = training.memory.first(request.sent)
    return ClientState({name: value.unsqueeze(0) for name, value in first.items()})
