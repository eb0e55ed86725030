"""The federated methods, one file for each family. A new method needs one file here, its import below, and one test."""

from .base import LocalRun, Method, RoundMean, Step, Upload, check_returned
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
from .scaffold import Scaffold

METHODS = Method.by_name

__all__ = [
    "EWC",
    "METHODS",
    "AdaBest",
    "FedACG",
    "FedASAM",
    "FedAvg",
    "FedCM",
    "FedDyn",
    "FedFA",
    "FedLESAM",
    "FedMoSWA",
    "FedProx",
    "FedSAM",
    "FedSWA",
    "LocalRun",
    "Method",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "RoundMean",
    "Scaffold",
    "Step",
    "Upload",
    "check_returned",
]
