"""Evaluation of models: on the central test set, at the clients, and derivatives of the loss."""

from .calibration import Calibration
from .curvature import Curvature
from .curves import NOT_EVALUATED, SPLITS, Curves, Models, mean_or_none
from .evaluator import Ask, Evaluator, scored
from .goal import Goal
from .metrics import Metrics
from .over_clients import COUNTED, OVER_CLIENTS, over_clients
from .scorer import Outcomes, Scorer, Scores
from .settings import Evaluation, FineTuning, Split, SplitsOf, tuned

__all__ = [
    "COUNTED",
    "NOT_EVALUATED",
    "OVER_CLIENTS",
    "SPLITS",
    "Ask",
    "Calibration",
    "Curvature",
    "Curves",
    "Evaluation",
    "Evaluator",
    "FineTuning",
    "Goal",
    "Metrics",
    "Models",
    "Outcomes",
    "Scorer",
    "Scores",
    "Split",
    "SplitsOf",
    "mean_or_none",
    "over_clients",
    "scored",
    "tuned",
]
