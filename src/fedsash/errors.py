"""Errors that a user can correct: one line each."""

from .lab.config import ConfigError
from .runs import UnknownModelError
from .settings.errors import DataError, FedsashError, LibraryError, ModelError, RunError, SettingError, WorkerError

__all__ = [
    "ConfigError",
    "DataError",
    "FedsashError",
    "LibraryError",
    "ModelError",
    "RunError",
    "SettingError",
    "UnknownModelError",
    "WorkerError",
]
