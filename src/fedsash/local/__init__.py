"""The client half of a round: how clients train, which samples they see, and who answers for them."""

from .settings import Client
from .trainer import Batch, Gradient, Trainer

__all__ = ["Batch", "Client", "Gradient", "Trainer"]
