"""Evaluation of models: on the central test set, at the clients, and derivatives of the loss."""

from .curvature import Curvature
from .evaluator import Ask, Evaluation, Evaluator, Metrics, Split, scored
from .goal import Goal
from .scorer import Outcomes, Scorer, Scores

__all__ = [
    "Ask",
    "Curvature",
    "Evaluation",
    "Evaluator",
    "Goal",
    "Metrics",
    "Outcomes",
    "Scorer",
    "Scores",
    "Split",
    "scored",
]
