"""The federated methods, one file a family. A new method is one file here, one line below, and one test."""

from .anchors import FedFA
from .base import Local, Method, Received, Step, Upload, Vectors
from .dynamic import AdaBest, FedDyn
from .ewc import EWC
from .fedavg import FedAvg
from .fedprox import FedProx
from .momentum import FedACG, FedCM, Mime, MimeLite
from .moswa import FedMoSWA, FedSWA
from .scaffold import Scaffold
from .sharpness import FedASAM, FedLESAM, FedSAM, MoFedSAM

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
    "Local",
    "Method",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "Received",
    "Scaffold",
    "Step",
    "Upload",
    "Vectors",
]
