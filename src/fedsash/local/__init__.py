"""The client half of a round: the settings of local training, its batches and steps, and the trainer."""

from .evaluator import ClientEvaluator
from .fine_tuning import fine_tuned
from .memory import ClientMemory
from .optimisers import OPTIMISERS, SGD, Adagrad, Adam, AdamW, Optimiser, RMSprop
from .plan import RoundPlan, RoundPlans
from .settings import LocalTraining
from .steps import Batch, Draws, Gradient, StepInputs
from .trainer import Trainer

__all__ = [
    "OPTIMISERS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Batch",
    "ClientEvaluator",
    "ClientMemory",
    "Draws",
    "Gradient",
    "LocalTraining",
    "Optimiser",
    "RMSprop",
    "RoundPlan",
    "RoundPlans",
    "StepInputs",
    "Trainer",
    "fine_tuned",
]
