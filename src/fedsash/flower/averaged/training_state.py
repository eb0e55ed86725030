"""The state of a training: its newest model, its averages and its metrics, in memory and on disk."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from ...averages import Average
from ...averages.lent import check_fits
from ...vector import saved
from ...vector.arrays import Vectors
from .arrays import ArrayLayout, check_finite, pack, unpack
from .best import KeptBest, Rounds
from .memory import Memory
from .model_averages import ModelAverages

FORMAT = 3
METRICS = tuple(field.name for field in fields(Result) if field.name != "arrays")
"""The names of the metrics of a `Result`, each a record a round."""


class TrainingState:
    """The state of a training after `round` finished rounds, beside what the strategy remembers.

    `model` is the last good model, as the strategy gave it. `metrics` are those of a `Result`. Models on disk lie in
    `folder`. No average has the arrays that `latest` names. `best` keeps the best served model; None keeps none. Raises
    `ModelError` if the first model can't be averaged, `SettingError` if an average does not fit it.
    """

    def __init__(
        self,
        averages: Mapping[str, Average],
        first: ArrayRecord,
        folder: Path | None,
        latest: Collection[str] = (),
        best: KeptBest | None = None,
    ) -> None:
        self.layout = ArrayLayout(first)
        self.model = first
        self.round = 0
        self._tensors = self.layout.tensors(first)
        check_finite(self._tensors)
        self._averages = ModelAverages(averages, self._tensors, folder, latest)
        self.metrics: dict[str, Rounds] = {name: {} for name in METRICS}
        self.best = best

    def take(self, model: ArrayRecord, round: int) -> str:
        """Let the averages observe the model of `round`, unless it is not finite. Returns why it was refused, or ""."""
        tensors = self.layout.tensors(model)
        if fault := self.layout.fault(model, tensors):
            return fault
        # Copies: a strategy may change its own record.
        self.model = ArrayRecord(dict(model.items()))
        self._tensors = tensors
        self._averages.observe(tensors, round)
        return ""

    def begun(self, name: str) -> bool:
        """Whether there is a model in the average."""
        return self._averages.count(name) > 0

    def value(self, name: str) -> ArrayRecord:
        """The average, or the last good model for the name "model", in the types of the first model."""
        if name == "model":
            return self.layout.record(self._tensors, self.model)
        return self.layout.record(self._averages.value(name, self._tensors))

    def note(self, kind: str, round: int, metrics: MetricRecord | None) -> None:
        """Keep the metrics of a round, if there are any."""
        if metrics is not None:
            self.metrics[kind][round] = metrics

    def close(self, round: int, served: str) -> None:
        """Count the round as finished, and keep the model that is `served` if it is the best one."""
        self.round = round
        if self.best is not None:
            by_server = self.metrics["evaluate_metrics_serverapp"]
            by_clients = self.metrics["evaluate_metrics_clientapp"]
            self.best.observe(round, [by_server, by_clients], partial(self.value, served))

    def save(self, folder: Path, about: Mapping[str, str], memory: Memory, configs: Memory) -> None:
        """Save it in `folder`, with the strategy's `memory` and the state of Python's random numbers.

        Flower draws the nodes of a round by these random numbers.

        `configs` is what the strategy has written into the records that Flower passes on from round to round.
        """
        rest = {
            "model": self.model,
            "metrics": self.metrics,
            "memory": memory,
            "configs": configs,
            "random": random.getstate(),
        }
        tensors = self._averages.state()
        arrays: Vectors = {}
        facts = {"format": FORMAT, "round": self.round, "about": dict(about), "rest": pack(rest, arrays)}
        parts = self._averages.models()
        if self.best is not None:
            facts["best"], best_model = self.best.saved()
            parts |= best_model
        saved.save(folder, self.round, tensors | arrays, parts, facts)

    def load(self, folder: Path, about: Mapping[str, str]) -> tuple[Memory, Memory, list[str]]:
        """Go on from the newest state in `folder`, if there is one.

        Returns the strategy's memory, what it has written into records, and lines about damaged states. Raises
        `RunError` if the state is of another training, or can't be read.
        """
        loaded, notes = saved.newest(folder, partial(self._load, about))
        if loaded is None:
            return {}, {}, notes
        # Rounds after it are trained again, and end with other models.
        saved.cut(folder, self.round)
        memory, configs, note = loaded
        if note:
            notes.append(note)
        return memory, configs, notes

    def _load(self, about: Mapping[str, str], path: Path) -> tuple[Memory, Memory, str]:
        facts, state = saved.read(path, FORMAT)
        check_fits(f"{path} is of another training", about, facts["about"], "; take a new folder")
        rest: dict[str, Any] = unpack(facts["rest"], state)
        self._averages.load(state, path)
        note = ""
        if self.best is not None:
            note = self.best.load(facts.get("best"), path)
        self.round = facts["round"]
        self.model = rest["model"]
        self.metrics = rest["metrics"]
        self._tensors = self.layout.tensors(self.model)
        random.setstate(rest["random"])
        return rest["memory"], rest["configs"], note
