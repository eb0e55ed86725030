"""From the uploads of a round's clients to one update: the rules, and their sums."""

from .rules import AGGREGATIONS, FedGMA, FedNova, Mean

__all__ = ["AGGREGATIONS", "FedGMA", "FedNova", "Mean"]
