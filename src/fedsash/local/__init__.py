"""The client half of a round: the settings of local training, its batches and steps, and the trainer."""

from .client_scorer import ClientScorer
from .effort import effort_of, no_effort
from .fine_tuning import fine_tuned
from .optimisers import OPTIMISERS, SGD, Adagrad, Adam, AdamW, Optimiser, RMSprop
from .settings import LocalTraining
from .steps import Batch, Draws, Gradient, StepInputs
from .trainer import Begun, Trainer

__all__ = [
    "OPTIMISERS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Batch",
    "Begun",
    "ClientScorer",
    "Draws",
    "Gradient",
    "LocalTraining",
    "Optimiser",
    "RMSprop",
    "StepInputs",
    "Trainer",
    "effort_of",
    "fine_tuned",
    "no_effort",
]
