"""From the uploads of a round's clients to one update: the rules, and their sums."""

from .accountant import Privacy
from .private import Adaptive, Private
from .rules import Aggregation, FedGMA, FedNova, WeightedMean

AGGREGATIONS = Aggregation.by_name

__all__ = [
    "AGGREGATIONS",
    "Adaptive",
    "Aggregation",
    "FedGMA",
    "FedNova",
    "Privacy",
    "Private",
    "WeightedMean",
]
