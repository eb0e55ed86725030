"""Evaluation of models: on the central test set, at the clients, and derivatives of the loss."""

from .curvature import Curvature
from .evaluator import SCORES, Ask, Evaluation, Evaluator, Metrics, Scorer, Split, scored

__all__ = ["SCORES", "Ask", "Curvature", "Evaluation", "Evaluator", "Metrics", "Scorer", "Split", "scored"]
