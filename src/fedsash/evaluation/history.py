"""The history of a run: its records in their order, and what they come to, such as curves and means over the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol, overload

from torch import Tensor

from ..tasks import Criterion
from .over_clients import COUNTED, OVER_CLIENTS
from .records import Decision, NetworkLoad, PrivacySpent, Problems, Record, Row, Score

SPLITS = {
    "test": "the test set",
    "held_out": "held-out data",
    "client_test": "the clients' own test samples",
    "held_out_tuned": "held-out data, after fine-tuning",
    "client_test_tuned": "the clients' own test samples, after fine-tuning",
    "clients": "the clients' training samples",
}
"""The splits on which models are scored, and their names."""
COMPARED = ("test", "held_out", "client_test")
"""The splits on which models are compared, on the first one that a run has."""
NOT_EVALUATED = "no evaluation: none is due yet, or there is no test set, and evaluation.held_out is 0"
"""What tables and pages say of a run without curves."""
Models = Mapping[str, Mapping[int, float]]
"""Each model's values by round, ascending."""
OverClients = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By split and model: the numbers over clients, and how many clients they are of."""


class History(Sequence[Record]):
    """All that a run has recorded, in the order in which it was recorded.

    It is a sequence of `Score`, `Problems`, `PrivacySpent`, `Decision` and `NetworkLoad`. Of one type are `scores()`,
    `problems`, `privacy`, `decisions` and `network`; `curves(criterion)` are a metric's values by model and round, and
    `reached(criterion)` the first scores at its target. `rows()` are flat tables, for example for a data frame.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = list(records)

    def rows(self) -> list[Row]:
        """A flat table for each record, as in `metrics.jsonl`."""
        return [record.row() for record in self._records]

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> History: ...

    def __getitem__(self, index: int | slice) -> Record | History:
        if isinstance(index, slice):
            return History(self._records[index])
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History | list) and self._records == list(other)

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        rounds = max((record.round for record in self._records), default=0)
        return f"History of {len(self)} records up to round {rounds}"

    def add(self, records: Iterable[Record]) -> None:
        """Add records at the end."""
        self._records.extend(records)

    def until(self, round: int) -> History:
        """The history up to a round."""
        return History(record for record in self._records if record.round <= round)

    def scores(self, split: str = "") -> list[Score]:
        """The scores of all models on the splits on which models are scored, or on one of them."""
        scores = [record for record in self._records if isinstance(record, Score)]
        if split:
            return [score for score in scores if score.split == split]
        return [score for score in scores if score.split in SPLITS]

    @property
    def evaluated(self) -> set[int]:
        """The rounds after which models were scored."""
        return {score.round for score in self.scores()}

    @property
    def splits(self) -> set[str]:
        """The splits on which models were scored."""
        return {score.split for score in self.scores()}

    @property
    def problems(self) -> dict[int, Problems]:
        """The problems of rounds that had some, by round; of several records of one step those of the last."""
        return {record.round: record for record in self._records if isinstance(record, Problems)}

    @property
    def decisions(self) -> list[Decision]:
        """The decisions of an adaptive broadcast."""
        return [record for record in self._records if isinstance(record, Decision)]

    @property
    def network(self) -> dict[int, NetworkLoad]:
        """What a simulated network has carried so far, by round."""
        return {record.round: record for record in self._records if isinstance(record, NetworkLoad)}

    @property
    def privacy(self) -> PrivacySpent | None:
        """What was spent of the clients' privacy so far; None if the aggregation does not protect them."""
        for record in reversed(self._records):
            if isinstance(record, PrivacySpent):
                return record
        return None

    def compared_on(self) -> str:
        """The split on which the run's models are compared: the first of `COMPARED` that it has."""
        splits = self.splits
        for split in COMPARED:
            if split in splits:
                return split
        return "test"

    def curves(self, criterion: Criterion, split: str = "") -> Curves:
        """Each model's values of the criterion by round on a split, by default on the one that compares models."""
        split = split or self.compared_on()
        models: dict[str, dict[int, float]] = {}
        for score in self.scores(split):
            value = score.get(criterion.name)
            if not math.isfinite(value):
                value = math.nan
            models.setdefault(score.model, {})[score.round] = value
        ascending = {model: dict(sorted(points.items())) for model, points in models.items()}
        return Curves(criterion, split, ascending)

    def reached(self, criterion: Criterion) -> dict[str, Score]:
        """The first score of each model that reaches the criterion's target, on the split that compares models."""
        first: dict[str, Score] = {}
        for score in self.scores(self.compared_on()):
            if criterion.reached(score.get(criterion.name)):
                first.setdefault(score.model, score)
        return first

    def over_clients(self, last: int) -> OverClients:
        """By split and model, the means of the numbers over clients at the last `last` evaluations.

        A number is None if one of its values is undefined, and for a model that was not evaluated at all of them. The
        counts of clients are those of the model's last evaluation. A split that is scored no more is left out.
        """
        by_split: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {split: {} for split in SPLITS}
        for score in self.scores():
            if OVER_CLIENTS[0] in score.more:
                by_split[score.split].setdefault(score.model, {})[score.round] = score.more
        newest = max(self.evaluated, default=0)
        results: dict[str, dict[str, Mapping[str, Any]]] = {}
        for split, models in by_split.items():
            rounds = last_rounds(models, last)
            if rounds and rounds[-1] == newest:
                results[split] = {model: _means(by_round, rounds) for model, by_round in models.items()}
        return results

    def stuck(self, rounds: int) -> dict[str, Any] | None:
        """Since when a run that ends after so many rounds is stuck, or None.

        A run is stuck if it ends with rounds that had no usable update: it has diverged, or nobody who was asked
        answers. A round in which nobody was asked leaves no record, so it counts as one that had an update. The result
        is `{"round", "why"}`: the first of these rounds, and the reason.
        """
        skipped = {round: problems.skipped for round, problems in self.problems.items()}
        if not skipped.get(rounds):
            return None
        first = rounds
        while skipped.get(first - 1):
            first -= 1
        return {"round": first, "why": skipped[first]}


@dataclass(frozen=True)
class Curves:
    """Each model's values of the `criterion` by round, on a `split`; a value that is not finite is NaN."""

    criterion: Criterion
    split: str
    models: Models

    @property
    def title(self) -> str:
        """What the values are, such as "accuracy on the test set"."""
        return f"{self.criterion.name} on {SPLITS.get(self.split, self.split)}"

    @property
    def caption(self) -> str:
        """The title and the direction: "rmse on the test set; lower is better". Empty for the usual accuracy."""
        if self.criterion.name == "accuracy" and self.split == "test":
            return ""
        return f"{self.title}; {self.criterion.better} is better"

    def __bool__(self) -> bool:
        return bool(self.models)


class Chronicle(Protocol):
    """Additional records of a run, for example of the time on a simulated network."""

    def records(self, round: int, w: Tensor, records: Sequence[Record]) -> list[Record]:
        """What to record of an evaluation after `round`, made from its records; `w` `[D]` is the global model."""
        ...

    def summary(self, history: History, criterion: Criterion) -> dict[str, Any]:
        """Additional fields of the run's summary; the first round is reported that reaches the criterion's target."""
        ...

    def timeline(self) -> dict[str, Any]:
        """The events of each client and the server with their times, for a file in the run's folder."""
        ...


def last_rounds(models: Mapping[str, Mapping[int, Any]], count: int) -> list[int]:
    """The last `count` rounds in which any of the models was evaluated, ascending."""
    rounds: set[int] = set()
    for by_round in models.values():
        rounds.update(by_round)
    return sorted(rounds)[-count:]


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """The mean. None if a value is undefined, which is None, NaN or infinite, or if there is no value."""
    defined: list[float] = []
    for value in values:
        if value is None or not math.isfinite(value):
            return None
        defined.append(value)
    return fmean(defined) if defined else None


def _means(by_round: Mapping[int, Mapping[str, Any]], rounds: Sequence[int]) -> dict[str, Any]:
    """The means of the numbers over clients in these rounds, and the counts of clients in the model's last one."""
    numbers: dict[str, Any] = {}
    for name in OVER_CLIENTS:
        values = [by_round.get(round, {}).get(name) for round in rounds]
        numbers[name] = mean_or_none(values)
    last = by_round[max(by_round)]
    for name in COUNTED:
        numbers[name] = last.get(name, 0)
    return numbers
