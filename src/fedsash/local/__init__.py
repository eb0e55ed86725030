"""The client half of a round: how clients train, which samples they see, and who answers for them."""

from .settings import LocalTraining
from .trainer import Batch, Gradient, Trainer

__all__ = ["Batch", "Gradient", "LocalTraining", "Trainer"]
