"""A second account of every federated method: plain NumPy in float64, one client and one step at a time.

Written from the papers' equations alone, so that it shares nothing with the library but the start, who takes part, and
which samples a batch holds. The network is `Linear(4, 5), Tanh, Linear(5, 3)`; a model is a flat vector `w` `[43]`.
"""

from .base import CLASSIFIER, Array, FedAvg, Net, cross_entropy
from .methods import KINDS
from .runs import aggregate, normaliser, run

__all__ = ["CLASSIFIER", "KINDS", "Array", "FedAvg", "Net", "aggregate", "cross_entropy", "normaliser", "run"]
