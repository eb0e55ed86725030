"""The federated methods, one file a family. A new method is one file here, one line below, and one test."""

from .base import Local, Method, Step, Upload, Vectors
from .fedavg import FedAvg
from .fedprox import FedProx
from .scaffold import Scaffold

METHODS: dict[str, type[Method]] = {"fedavg": FedAvg, "fedprox": FedProx, "scaffold": Scaffold}

__all__ = ["METHODS", "FedAvg", "FedProx", "Local", "Method", "Scaffold", "Step", "Upload", "Vectors"]
