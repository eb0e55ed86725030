"""From the uploads of a round's clients to one update: the rules, and their sums."""

from .rules import AGGREGATIONS, Aggregation, FedGMA, FedNova, WeightedMean

__all__ = ["AGGREGATIONS", "Aggregation", "FedGMA", "FedNova", "WeightedMean"]
