"""How clients train a copy of a model before they score it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..evaluation import FineTuning
from ..methods.schedules import Constant, Schedule
from .settings import LocalTraining


@dataclass(frozen=True)
class _Rates(Schedule):
    """The learning rates of another schedule in the round before, which made the model; its epochs are left out."""

    of: Schedule

    def lr(self, t: int, lr: float) -> float:
        return self.of.lr(max(t - 1, 0), lr)


def fine_tuned(local: LocalTraining, tuning: FineTuning) -> LocalTraining:
    """The local training of clients that fine-tune a model: all by the same amount, from new moments."""
    schedule = _Rates(local.schedule) if tuning.lr is None else Constant()
    return replace(
        local,
        lr=local.lr if tuning.lr is None else tuning.lr,
        schedule=schedule,
        epochs=tuning.epochs,
        steps=tuning.steps,
        stragglers=0.0,
        keep_moments=False,
    )
