"""Evaluation of models: on the central test set, at the clients, and derivatives of the loss."""

from .calibration import Calibration
from .curvature import Curvature
from .curves import NOT_EVALUATED, PLACES, Curves, Models
from .evaluator import Ask, Evaluation, Evaluator, Metrics, Split, scored
from .goal import Goal
from .scorer import Outcomes, Scorer, Scores

__all__ = [
    "NOT_EVALUATED",
    "PLACES",
    "Ask",
    "Calibration",
    "Curvature",
    "Curves",
    "Evaluation",
    "Evaluator",
    "Goal",
    "Metrics",
    "Models",
    "Outcomes",
    "Scorer",
    "Scores",
    "Split",
    "scored",
]
