"""How long messages on a simulated network are: as long as the vectors that the method sends."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..client.messages import Request
from ..engines import Training, upload_like
from ..vector.arrays import Vectors
from ..vector.sharing import Sharing
from ..vector.spaces import Download


class Messages(NamedTuple):
    """The bytes of a message to a client, `down`, and of its answer, `up`."""

    down: int
    up: int


class Lengths(NamedTuple):
    """The messages of a request to train, and those of the method's probe before it, if it has one."""

    train: Messages
    probe: Messages | None

    def of(self, probe: bool) -> Messages:
        """The messages of a probe, or of a training."""
        if probe and self.probe is not None:
            return self.probe
        return self.train


def model_bytes(sharing: Sharing) -> int:
    """The length in bytes of what is sent of a model: all but what stays with the clients."""
    return (sharing.layout.size - sharing.own_size) * sharing.layout.dtype.itemsize


def lengths(training: Training, bytes: int | None) -> Lengths:
    """The lengths of a method's messages: the model and the method's vectors; client state stays with the clients.

    If a model is said to be `bytes` long, all messages grow or shrink with it.
    """
    model = model_bytes(training.sharing)
    train = training.first(np.zeros(1, dtype=np.int64))

    def scaled(size: int) -> int:
        if bytes is None:
            return size
        return round(bytes * size / max(model, 1))

    def messages(request: Request) -> Messages:
        down = model + _bytes(request.server_state)
        up = _bytes(upload_like(training, request))
        return Messages(scaled(down), scaled(up))

    if "probe" not in training.method.overridden:
        return Lengths(messages(train), None)
    probe = replace(train, job="probe", server_state=Download({}))
    means = {name: value[0] for name, value in upload_like(training, probe).items()}
    after = replace(train, server_state=Download(train.server_state | means))
    return Lengths(messages(after), messages(probe))


def _bytes(vectors: Vectors) -> int:
    return sum(value.nbytes for value in vectors.values())
