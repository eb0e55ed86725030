"""What clients may send: the names, shapes and types of vectors, from the server's own knowledge of the method.

So no reply of a client decides what is right.
"""

from __future__ import annotations

from ...basics.arrays import Vectors
from ...exchange import Request
from ...executors import Training, state_like, upload_like
from .wire import Form, Forms


def of_uploads(training: Training, request: Request, clients: int) -> Forms:
    """The forms of the uploads `[clients, ...]` to a request to train, or to a probe."""
    return _rows(upload_like(training, request), clients)


def of_states(training: Training, request: Request, clients: int) -> Forms:
    """The forms of the clients' new state `[clients, ...]`, if it travels."""
    if request.job != "train" or request.client_state is None:
        return {}
    return _rows(state_like(training, request), clients)


def _rows(vectors: Vectors, clients: int) -> Forms:
    return {name: Form((clients, *value.shape[1:]), value.dtype) for name, value in vectors.items()}
