"""What a run records: scores, problems of a round, privacy spent, a broadcast's decision, a network's load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..vector.arrays import Floats
from ..vector.shown import Shown
from .over_clients import COUNTED, OVER_CLIENTS

Row: TypeAlias = dict[str, Any]
"""A record as a flat table: a line of `metrics.jsonl`. Each has `round`, `model` and `split`, which says its type."""

BESIDE = ("classes", "domains", *OVER_CLIENTS, *COUNTED)
"""What a score has beside its loss and metrics."""
RESERVED = ("round", "model", "split", "loss", *BESIDE, "better", "start", "held_out", "time", "trips", "skipped")
"""Names of other values in the rows of scores and decisions, which no metric can have."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Score(Shown):
    """How good one model is on one split, after `round` finished rounds: the mean loss, and all metrics as `values`.

    `score["accuracy"]` gives a metric by its name; shares lie in [0, 1], and what is not defined is NaN.

    - Split `"test"`: the central test set. `more` holds the criterion by class, `classes` (unless it is a metric of all
      samples together), and by domain, `domains` (None where it is not defined);
    - `"held_out"` and `"client_test"`: the clients' held-out samples, and their own test samples, all together;
    - `"held_out_tuned"` and `"client_test_tuned"`: the same samples, scored by each client with its fine-tuned copy;
    - `"clients"`: the unweighted mean over the clients, on their training samples.

    On splits of clients, `more` holds what the criterion comes to over the clients (see `over_clients`), and `each` is
    the criterion of every client `[N]`, NaN where it is not defined and where the client did not answer; it is not in
    the row. On a simulated network, `time` is when the models were evaluated, and `trips` how many of the clients'
    trips had ended.
    """

    round: int
    model: str
    split: str
    loss: float = math.nan
    values: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    each: Floats | None = field(default=None, repr=False, compare=False)
    time: float | None = None
    trips: int | None = None

    def __getitem__(self, name: str) -> float:
        """The loss or a metric by its name."""
        return self.loss if name == "loss" else self.values[name]

    def get(self, name: str) -> float:
        """The loss or a metric by its name; NaN for one that it has not."""
        return self.loss if name == "loss" else self.values.get(name, math.nan)

    def row(self) -> Row:
        """The score as a row."""
        row: Row = {"round": self.round, "model": self.model, "split": self.split}
        row |= self.values
        row["loss"] = self.loss
        row |= self.more
        return row | _when(self.time, self.trips)

    @classmethod
    def of(cls, row: Row) -> Score:
        """The score in a row, which has null for a number that is not finite."""
        more = {name: row[name] for name in BESIDE if name in row}
        others = ("round", "model", "split", "loss", "time", "trips", *more)
        return cls(
            round=row["round"],
            model=row["model"],
            split=row["split"],
            loss=_number(row.get("loss")),
            values={name: _number(value) for name, value in row.items() if name not in others},
            more=more,
            time=row.get("time"),
            trips=row.get("trips"),
        )


@dataclass(frozen=True, kw_only=True)
class Problems:
    """A round with problems: the clients whose upload was `refused`, those that did not answer and why (`missing`), and
    why the round was `skipped`; empty if it was not."""

    round: int
    refused: list[int] = field(default_factory=list)
    missing: Mapping[int, str] = field(default_factory=dict)
    skipped: str = ""

    def row(self) -> Row:
        """The problems as a row of the split "guard"."""
        missing = {str(client): reason for client, reason in self.missing.items()}
        row: Row = {"round": self.round, "model": "model", "split": "guard"}
        return row | {"refused": self.refused, "missing": missing, "skipped": self.skipped}

    @classmethod
    def of(cls, row: Row) -> Problems:
        """The problems in a row."""
        missing = row.get("missing") or {}
        return cls(
            round=row["round"],
            refused=list(row.get("refused") or ()),
            missing={int(client): str(reason) for client, reason in missing.items()},
            skipped=row.get("skipped") or "",
        )


@dataclass(frozen=True, kw_only=True)
class PrivacySpent:
    """How private all models so far are for every client: (`epsilon`, `delta`), see `Privacy`."""

    round: int
    epsilon: float
    delta: float
    neighbours: str
    time: float | None = None
    trips: int | None = None

    def row(self) -> Row:
        """What was spent, as a row of the split "privacy"."""
        row: Row = {"round": self.round, "model": "model", "split": "privacy"}
        row |= {"epsilon": self.epsilon, "delta": self.delta, "neighbours": self.neighbours}
        return row | _when(self.time, self.trips)

    @classmethod
    def of(cls, row: Row) -> PrivacySpent:
        """What was spent according to a row: no finite epsilon is an infinite one."""
        epsilon = row.get("epsilon")
        return cls(
            round=row["round"],
            epsilon=math.inf if epsilon is None else epsilon,
            delta=_number(row.get("delta")),
            neighbours=row.get("neighbours") or "",
            time=row.get("time"),
            trips=row.get("trips"),
        )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What an adaptive broadcast has decided after an evaluation: which `average` is sent, and from the model after
    `start` rounds on (None: not yet).

    `better` counts the last successive evaluations in which the best average was better than the model. `held_out` has
    the values that were compared. `loss` and `values` are those of the average on the clients' held-out samples.
    """

    round: int
    average: str
    start: int | None
    better: int
    held_out: Mapping[str, float]
    loss: float = math.nan
    values: Mapping[str, float] = field(default_factory=dict)
    time: float | None = None
    trips: int | None = None

    def row(self) -> Row:
        """The decision as a row of the split "broadcast"."""
        row: Row = {"round": self.round, "model": self.average, "split": "broadcast"}
        row |= self.values
        row |= {"loss": self.loss, "better": self.better, "start": self.start, "held_out": self.held_out}
        return row | _when(self.time, self.trips)

    @classmethod
    def of(cls, row: Row) -> Decision:
        """The decision in a row."""
        others = ("round", "model", "split", "loss", "better", "start", "held_out", "time", "trips")
        return cls(
            round=row["round"],
            average=row["model"],
            start=row.get("start"),
            better=row.get("better") or 0,
            held_out=row.get("held_out") or {},
            loss=_number(row.get("loss")),
            values={name: _number(value) for name, value in row.items() if name not in others},
            time=row.get("time"),
            trips=row.get("trips"),
        )


@dataclass(frozen=True, kw_only=True)
class NetworkLoad:
    """What a simulated network has carried so far: its `measures` by name, among them `time` and `trips`."""

    round: int
    measures: Mapping[str, Any]

    @property
    def time(self) -> float:
        """The simulated time."""
        return float(self.measures["time"])

    @property
    def trips(self) -> int:
        """How many of the clients' trips have ended."""
        return int(self.measures["trips"])

    def row(self) -> Row:
        """The measures as a row of the split "network"."""
        return {"round": self.round, "model": "model", "split": "network", **self.measures}

    @classmethod
    def of(cls, row: Row) -> NetworkLoad:
        """The measures in a row."""
        return cls(
            round=row["round"],
            measures={name: value for name, value in row.items() if name not in ("round", "model", "split")},
        )


Record: TypeAlias = Score | Problems | PrivacySpent | Decision | NetworkLoad

TYPES: Mapping[str, type[Problems] | type[PrivacySpent] | type[Decision] | type[NetworkLoad]] = {
    "guard": Problems,
    "privacy": PrivacySpent,
    "broadcast": Decision,
    "network": NetworkLoad,
}
"""The types of records by what their rows have as the split; all other rows are scores."""


def record_of(row: Row) -> Record:
    """The record in a row."""
    record: Record = TYPES.get(row["split"], Score).of(row)
    return record


def _when(time: float | None, trips: int | None) -> Row:
    """The columns of a run on a simulated network; none elsewhere."""
    columns: Row = {}
    if time is not None:
        columns["time"] = time
    if trips is not None:
        columns["trips"] = trips
    return columns


def _number(value: Any) -> Any:
    """A number as the record has it: a file has null for one that is not finite."""
    return math.nan if value is None else value
