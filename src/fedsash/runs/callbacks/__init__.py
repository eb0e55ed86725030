"""Callbacks that an experiment file can name."""

from __future__ import annotations

from .. import Callback
from .early_stopping import EarlyStopping
from .export_best import ExportBest
from .mlflow import MLflow
from .tensorboard import TensorBoard
from .track import Track
from .trackio import Trackio
from .wandb import WandB

CALLBACKS = Callback.by_name

__all__ = ["CALLBACKS", "EarlyStopping", "ExportBest", "MLflow", "TensorBoard", "Track", "Trackio", "WandB"]
