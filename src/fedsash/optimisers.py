"""Optimisers of clients, and those of the server."""

from .client.optimisers import SGD, Adagrad, Adam, AdamW, RMSprop
from .methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, ServerSGD

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "FedAdagrad",
    "FedAdam",
    "FedYogi",
    "RMSprop",
    "ServerSGD",
]
