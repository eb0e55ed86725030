"""Federations over Flower: nodes that train as clients of a `Federation`."""

from .client import client_app
from .nodes import FlowerClients
from .roll_call import Waiting
from .settings import NamedModel

__all__ = ["FlowerClients", "NamedModel", "Waiting", "client_app"]
