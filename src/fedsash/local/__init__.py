"""The client half of a round: the settings of local training, its batches and steps, and the trainer."""

from .settings import LocalTraining
from .steps import Batch, Gradient, StepInputs
from .trainer import Trainer

__all__ = ["Batch", "Gradient", "LocalTraining", "StepInputs", "Trainer"]
