"""What papers propose for a round, as functions of vectors: methods, rules, samplings, server optimisers, schedules.

A family of methods has a file. A new method needs one file here, its import below, and one test.
"""

from .accountant import Privacy
from .base import Effort, LocalRun, Method, RoundMean, Step, Upload, check_returned
from .ewc import EWC
from .fedacg import FedACG
from .fedavg import FedAvg
from .fedcm import FedCM
from .feddyn import AdaBest, FedDyn
from .fedfa import FedFA
from .fedprox import FedProx
from .fedsam import FedASAM, FedLESAM, FedSAM, MoFedSAM
from .fedswa import FedMoSWA, FedSWA
from .mime import Mime, MimeLite
from .private import Adaptive, Private
from .rules import Aggregation, FedGMA, FedNova, WeightedMean
from .scaffold import Scaffold

METHODS = Method.by_name
AGGREGATIONS = Aggregation.by_name

__all__ = [
    "AGGREGATIONS",
    "EWC",
    "METHODS",
    "AdaBest",
    "Adaptive",
    "Aggregation",
    "Effort",
    "FedACG",
    "FedASAM",
    "FedAvg",
    "FedCM",
    "FedDyn",
    "FedFA",
    "FedGMA",
    "FedLESAM",
    "FedMoSWA",
    "FedNova",
    "FedProx",
    "FedSAM",
    "FedSWA",
    "LocalRun",
    "Method",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "Privacy",
    "Private",
    "RoundMean",
    "Scaffold",
    "Step",
    "Upload",
    "WeightedMean",
    "check_returned",
]
