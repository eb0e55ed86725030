"""The arguments of `run` and `resume`, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..settings.errors import check
from ..settings.limits import Count
from ..settings.setting import checked_value
from .callback import Callback
from .running_sums import RunningSums
from .settings import Checkpoint


def check_arguments(driver: Any, checkpoint: Any, trajectory: Any, callbacks: Any, progress: Any) -> None:
    """Raise `SettingError` for an argument of another type, and for a callback that does not fit the federation."""
    check(hasattr(driver, "federation"), "federation", driver, "must be a Federation")
    check(isinstance(checkpoint, Checkpoint), "checkpoint", checkpoint, "must be a Checkpoint(...)")
    check(isinstance(trajectory, RunningSums), "trajectory", trajectory, "must be RunningSums(...)")
    check(isinstance(progress, bool), "progress", progress, "must be True or False")
    known = isinstance(callbacks, Sequence) and all(isinstance(callback, Callback) for callback in callbacks)
    check(known, "callbacks", callbacks, "must be a list of objects whose classes extend Callback")
    for callback in callbacks:
        callback.fits(driver.federation)


def number_of(rounds: Any) -> int:
    """A number of rounds. Raises `SettingError` if it is none."""
    return int(checked_value("rounds", Count, rounds))
