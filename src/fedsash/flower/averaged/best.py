"""The best of the models that have been served, by a metric."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, MetricRecord

from ...settings.errors import RunError, brief, check
from ...vector import saved
from ...vector.arrays import Vectors
from .arrays import pack, unpack

log = logging.getLogger("flwr")

Mode = Literal["min", "max"]

Rounds = dict[int, MetricRecord]


@dataclass(frozen=True)
class BestModel:
    """The best served model: that after `round` rounds, whose metric was `score`."""

    round: int
    score: float
    arrays: ArrayRecord


class KeptBest:
    """Keeps the best served model by a `metric`, the one of the largest value ("max") or of the smallest one ("min").

    `model` is None before a round has the metric. Of equal ones it is the earliest. A value that is NaN is never the
    best.
    """

    def __init__(self, metric: str, mode: Mode) -> None:
        self.metric = metric
        self.mode = mode
        self.model: BestModel | None = None
        self._warned = False

    @classmethod
    def of(cls, best: tuple[str, Mode]) -> KeptBest:
        """That of the argument `best` of `Averaged`; raises `SettingError` for anything but a metric and a mode."""
        requirement = 'must be the name of a metric and "min" or "max": ("accuracy", "max")'
        is_pair = isinstance(best, tuple | list) and len(best) == 2
        check(is_pair, "Averaged.best", best, requirement)
        metric, mode = best
        check(isinstance(metric, str) and mode in ("min", "max"), "Averaged.best", best, requirement)
        return cls(metric, mode)

    def observe(self, round: int, evaluations: Sequence[Rounds], served: Callable[[], ArrayRecord]) -> None:
        """Keep the model that `served()` gives if it is the best one; a round without the metric passes.

        Numbers of two evaluations are not compared: the metric is that of the first of the `evaluations`, each a record
        a round, that has ever had it. Raises `RunError` if it is not a number.
        """
        for records in evaluations:
            if any(self.metric in record for record in records.values()):
                self._observe(round, records, served)
                return
        names = sorted({name for records in evaluations for name in records.get(round, {})})
        if names and self.model is None and not self._warned:
            log.warning("Averaged.best: round %d has no metric %r; it has %s", round, self.metric, brief(names))
            self._warned = True

    def _observe(self, round: int, records: Rounds, served: Callable[[], ArrayRecord]) -> None:
        """Keep the served model if it is the best one by the records of one evaluation."""
        if self.model is not None and self.metric not in records.get(self.model.round, {}):
            self.model = None  # it was the best of another evaluation
        if self.metric not in records.get(round, {}):
            return
        score = self._number(records[round][self.metric])
        if self._is_better(score):
            self.model = BestModel(round, score, served())

    def _number(self, value: object) -> float:
        if not isinstance(value, int | float):
            raise RunError(f"Averaged.best: the metric {self.metric!r} must be a number, and is {brief(value)}")
        return float(value)

    def _is_better(self, score: float) -> bool:
        if math.isnan(score):
            return False
        if self.model is None:
            return True
        if self.mode == "max":
            return score > self.model.score
        return score < self.model.score

    def saved(self) -> tuple[dict[str, Any], dict[str, Vectors]]:
        """What a saved state has of it: facts for JSON, and the model's arrays by the name of their file.

        A file is written once, since each model has a name of its own.
        """
        facts: dict[str, Any] = {"metric": self.metric, "mode": self.mode}
        if self.model is None:
            return facts, {}
        arrays: Vectors = {}
        facts["round"] = self.model.round
        facts["score"] = self.model.score
        facts["arrays"] = pack(self.model.arrays, arrays)
        return facts, {_file(self.model.round): arrays}

    def load(self, facts: dict[str, Any] | None, folder: Path) -> str:
        """Go on with what `saved` gave, from the files in `folder`. Returns a line if that is of another metric."""
        self.model = None
        if facts is None:
            return f"the saved state has no best model: it is the best by {self.metric} from now on"
        if (facts["metric"], facts["mode"]) != (self.metric, self.mode):
            return f"the best model so far is by {facts['metric']}, {facts['mode']}: it is chosen anew from now on"
        if "round" in facts:
            arrays = unpack(facts["arrays"], saved.tensors(folder / _file(facts["round"])))
            self.model = BestModel(facts["round"], facts["score"], arrays)
        return ""


def _file(round: int) -> str:
    return f"best-{round}.safetensors"
