"""Evaluation of models: on the central test set, at the clients, and derivatives of the loss."""

from .calibration import Calibration
from .curvature import Curvature
from .goal import Goal
from .history import NOT_EVALUATED, SPLITS, Chronicle, Curves, History, Models, OverClients, last_rounds, mean_or_none
from .over_clients import COUNTED, OVER_CLIENTS, over_clients
from .records import Decision, NetworkLoad, PrivacySpent, Problems, Record, Row, Score, record_of
from .scorer import Outcomes, Scorer, Scores
from .settings import Evaluation, FineTuning, Split, SplitsOf, tuned

__all__ = [
    "COUNTED",
    "NOT_EVALUATED",
    "OVER_CLIENTS",
    "SPLITS",
    "Calibration",
    "Chronicle",
    "Curvature",
    "Curves",
    "Decision",
    "Evaluation",
    "FineTuning",
    "Goal",
    "History",
    "Models",
    "NetworkLoad",
    "Outcomes",
    "OverClients",
    "PrivacySpent",
    "Problems",
    "Record",
    "Row",
    "Score",
    "Scorer",
    "Scores",
    "Split",
    "SplitsOf",
    "last_rounds",
    "mean_or_none",
    "over_clients",
    "record_of",
    "tuned",
]
