"""A run's times, counts and best models, which are kept beside its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ..evaluation import Evaluation, Score
from ..server.federation import Federation
from ..server.state import State
from ..tasks import Criterion
from ..vector.shown import Shown
from .records import Mark


@dataclass(repr=False)
class Best(Shown):
    """The best model of one name so far: its value, `by` which split and metric, its round, its vector `w` `[D]`."""

    value: float
    by: str
    round: int
    w: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Tally(Shown):
    """A run's counts and best models so far, saved beside the state. No round of its training depends on them.

    - `best`: the best model of each name;
    - `forked`: the round at which the run was forked from another one, or None;
    - `samples`: how many samples were trained on; `seconds`: the time of all rounds and evaluations;
      `training_seconds`: the time of the rounds alone;
    - `records`: how many rows it has recorded, and their checksum;
    - `evaluation_due`: whether the evaluation after the last round is still to be made.
    """

    best: Mapping[str, Best] = field(default_factory=dict)
    forked: int | None = None
    samples: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0
    records: Mark = field(default=(0, 0), repr=False)
    evaluation_due: bool = field(default=False, repr=False)


def best_by(evaluation: Evaluation, criterion: Criterion) -> str:
    """The rule by which the best model of each name is kept: the split, and the number there."""
    return f"{evaluation.best_on}/{criterion.name}"


def best_after(
    best: Mapping[str, Best], federation: Federation, state: State, scores: Sequence[Score]
) -> dict[str, Best]:
    """The best model of each name after an evaluation of the state: by the metric that decides on
    `evaluation.best_on`, and the first of equal ones. `best` are those before it.

    The models are made only if one of them is the best so far.
    """
    criterion = federation.goal.criterion
    by = best_by(federation.evaluation, criterion)
    after = {name: model for name, model in best.items() if model.by == by}  # a fork may choose by another rule
    values = {}
    for score in scores:
        if score.split == federation.evaluation.best_on:
            values[score.model] = score[criterion.name]
    better = []
    for name, value in values.items():
        best_value = after[name].value if name in after else None
        if criterion.wins(value, best_value):
            better.append(name)
    if not better:
        return after
    models = federation.models(state)
    for name in better:
        after[name] = Best(values[name], by, state.round, models[name].clone())
    return after
