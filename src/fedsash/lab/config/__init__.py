"""What an experiment file may say, checked."""

from .errors import ConfigError
from .experiment import Experiment, Recording, load, parse
from .model import Model

__all__ = ["ConfigError", "Experiment", "Model", "Recording", "load", "parse"]
