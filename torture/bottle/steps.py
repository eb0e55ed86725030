"""The steps of asynchronous schedulers, plainly in NumPy, by the uploads in the order in which they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .vectors import Model


@dataclass(frozen=True)
class Uploaded:
    """The model `w` `[D]` that a client has uploaded, which trained from `start`, the model after `version` steps."""

    client: int
    version: int
    start: Model
    w: Model


def fedasync(first: Model, uploads: Sequence[Uploaded], alpha: float, a: float) -> list[Model]:
    """The models w_0 = `first`, w_1, ... of FedAsync with polynomial weights (Xie et al. 2019).

    w_{t+1} = (1 - a_t) w_t + a_t u for each upload u of version tau, with a_t = alpha (t - tau + 1)^(-a).
    """
    models = [first]
    for upload in uploads:
        steps = len(models) - 1
        share = alpha / (steps - upload.version + 1) ** a
        models.append((1 - share) * models[-1] + share * upload.w)
    return models


def fedbuff(first: Model, uploads: Sequence[Uploaded], size: int, a: float) -> list[Model]:
    """The models of FedBuff, whose server makes a step of length 1 with every `size` uploads (Nguyen et al. 2022).

    w_{t+1} = w_t - (1/K) sum of s (w_tau - u), with s = (1 + t - tau)^(-a), where t counts the steps when u arrived.
    """
    models = [first]
    buffer: list[Model] = []
    for upload in uploads:
        steps = len(models) - 1
        buffer.append((models[upload.version] - upload.w) / (1 + steps - upload.version) ** a)
        if len(buffer) == size:
            models.append(models[-1] - np.sum(buffer, axis=0) / size)
            buffer = []
    return models


def fedwindow(first: Model, uploads: Sequence[Uploaded], size: int) -> list[Model]:
    """The models of FedWindow: each is the mean of the last `size` uploads, before which there is w_0."""
    window = [first] * size
    models = [first]
    for upload in uploads:
        window = [*window[1:], upload.w]
        models.append(np.mean(window, axis=0))
    return models


def versions_of_ring(uploads: Sequence[Uploaded], size: int) -> list[int]:
    """From which versions the clients of these uploads train in FedWindow.

    It is the one that the client received when it last left the window, which at first has the clients 0 to `size` - 1;
    or 0 before that.
    """
    window = list(range(size))
    received: dict[int, int] = {}
    versions = []
    for step, upload in enumerate(uploads, 1):
        versions.append(received.get(upload.client, 0))
        leaving, *window = [*window, upload.client]
        received[leaving] = step
    return versions
