"""The federated methods, one file for each family. A new method needs one file here, one line below, and one test."""

from .base import LocalRun, Method, RoundMean, Step, Upload, check_update, check_upload
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
from .whole import WholeMethod

METHODS: dict[str, type[Method]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "ewc": EWC,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "adabest": AdaBest,
    "fedcm": FedCM,
    "fedacg": FedACG,
    "mime": Mime,
    "mimelite": MimeLite,
    "fedsam": FedSAM,
    "fedasam": FedASAM,
    "mofedsam": MoFedSAM,
    "fedlesam": FedLESAM,
    "fedfa": FedFA,
    "fedswa": FedSWA,
    "fedmoswa": FedMoSWA,
}

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
    "WholeMethod",
    "check_update",
    "check_upload",
]
