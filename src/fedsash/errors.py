"""Errors that a user can correct: one line each."""

from .runs.models import UnknownModelError
from .settings.errors import (
    ConfigError,
    DataError,
    FedsashError,
    LibraryError,
    ModelError,
    RunError,
    SettingError,
    WorkerError,
)

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
