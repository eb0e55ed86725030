"""Experiment files: reading and checking them."""

from ...settings.errors import ConfigError
from .experiment import Experiment, OwnExperiment
from .model import Model
from .network import NetworkExperiment
from .parsing import load, load_own, load_run, parse

__all__ = [
    "ConfigError",
    "Experiment",
    "Model",
    "NetworkExperiment",
    "OwnExperiment",
    "load",
    "load_own",
    "load_run",
    "parse",
]
