"""The table `[track]`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import get_args, get_type_hints

from ...settings.errors import check_choice
from ...settings.setting import Setting
from .. import Callback
from .mlflow import MLflow
from .tensorboard import TensorBoard
from .trackio import Trackio
from .wandb import WandB

NONE = "none"
"""The word for no tracker, with which a sweep or `--set track=none` switches off those of its base."""


@dataclass(frozen=True)
class Track(Setting):
    """Where a run's numbers also go: `[track.wandb]` is short for `[callbacks.wandb]` with `name = "wandb"`."""

    tensorboard: TensorBoard | None = None
    """files for TensorBoard in the run's folder"""
    wandb: WandB | None = None
    """Weights & Biases"""
    mlflow: MLflow | None = None
    """MLflow"""
    trackio: Trackio | None = None
    """Trackio"""

    @classmethod
    def of(cls, name: str) -> Track:
        """The table for `track = "wandb"`: this tracker alone, with its defaults; for `"none"` without any."""
        if name == NONE:
            return cls()
        hints = get_type_hints(cls)
        trackers = {}
        for field in fields(cls):
            tracker, _ = get_args(hints[field.name])  # of "WandB | None"
            trackers[field.name] = tracker
        check_choice("Track.name", name, *trackers, NONE)
        return cls(**{name: trackers[name]()})

    def chosen(self) -> dict[str, Callback]:
        """Those that are switched on, by name."""
        return {name: callback for name, callback in vars(self).items() if callback is not None}
