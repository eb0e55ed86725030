"""The client half of a round: how clients train, which samples they see, and who answers for them."""

from .settings import LocalTraining
from .steps import Batch, Gradient, StepInputs
from .trainer import Trainer

__all__ = ["Batch", "Gradient", "LocalTraining", "StepInputs", "Trainer"]
