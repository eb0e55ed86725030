"""The result of a run: its numbers by model, and its models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..evaluation import NOT_EVALUATED, History
from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import RunError
from ..vector.shown import Shown, html_table, text_table
from .models import RunModels, UnknownModelError
from .pictures import Picture
from .pictures.curves import curves
from .summaries import metric_of
from .table import cells, heads, notes
from .tally import Tally

MOST_ROWS = 7


@dataclass(frozen=True, repr=False)
class BestRound(Shown):
    """The round after which a model was best on the split `chosen_on`, and the value of the metric that decides.

    `value` is this round's value on the test set, if there is one, also where held-out samples chose the round.
    """

    round: int
    value: float
    chosen_on: str


@dataclass(frozen=True, repr=False)
class ModelResult(Shown):
    """The results of one model of a run, by the metric that decides, in its unit; shares are in [0, 1].

    - `value`: at the last evaluation. None if it is not finite.
    - `last_mean`, `last_std`: the mean and the population standard deviation (dividing by n) at the last
      `Evaluation.last` evaluations, or at all if there are fewer. It is the deviation over rounds, not over seeds. None
      if a value is not finite, and for an average that begins among them.
    - `best`: the best round. None if there is none.
    - `rounds_to_target`: the first evaluated round that reaches the metric's target. None if none does.
    - `gain`: how much better `last_mean` is than that of `"model"`, positive if it is better; None without either.
    """

    value: float | None
    last_mean: float | None
    last_std: float | None
    best: BestRound | None
    rounds_to_target: int | None
    gain: float | None


@dataclass(repr=False)
class Result(RunModels):
    """The result of a run: every recorded metric, the summary, the last state, and the folder if there is one.

    `result["wima"]` gives the numbers of a model, and `result.model("wima")` the model itself, as a new module.
    `models` lists the names of all models: the global model `"model"`, each average, and, if there are held-out data
    (see `Evaluation.best_on`), the best version of each so far, such as `"wima-best"`. An unknown name raises
    `UnknownModelError`, a `KeyError`. `plot()` gives the picture of their curves. `interrupted` says
    that rounds are left, and `signal` is the number of the signal that asked to stop, or 0. `summary["ended_early"]`
    says why a callback has stopped the run, or is empty.

    `history` holds all records (see `History`). `state` is the state after the last round, `tally` has the run's times
    and counts, and its best models, and `federation` is the run's, with the engine with which it began.
    """

    history: History
    summary: dict[str, Any]
    state: State
    tally: Tally
    federation: Federation = field(compare=False)
    folder: Path | None
    interrupted: bool = False
    signal: int = 0

    def __getitem__(self, name: str) -> ModelResult:
        """The numbers of a model that was evaluated."""
        models = self.summary["models"]
        if name not in models:
            raise UnknownModelError(name, list(models), "" if models else NOT_EVALUATED)
        numbers = dict(models[name])
        if numbers["best"] is not None:
            numbers["best"] = BestRound(**numbers["best"])
        return ModelResult(**numbers)

    def plot(self, split: str = "") -> Picture:
        """The curves of all models by round: the metric that decides, on a `split`, by default that on which
        models are compared.

        A notebook shows the picture; `result.plot().save("curves.pdf")` writes it. It is the one in `curves.png` and on
        a page of `fedsash report`. Raises `RunError` if no model was evaluated there, and `ImportError`, when it is
        drawn, without matplotlib.
        """
        values = self.history.curves(self.federation.goal.criterion, split)
        if values:
            return curves(values, forked=self.tally.forked, broadcast_start=self._broadcast_start())
        splits = ", ".join(sorted(self.history.splits))
        if not splits:
            raise RunError(NOT_EVALUATED)
        raise RunError(f"no model was evaluated on {values.split}; there are: {splits}")

    def __repr__(self) -> str:
        """A few lines of text. If there are many models, only the first ones are shown."""
        return "\n".join([self._title(), "", *text_table(*self._table()), *notes(self.summary)])

    def _repr_html_(self) -> str:
        more = "".join(f"<p>{note}</p>" for note in notes(self.summary))
        return html_table(self._title(), *self._table()) + more

    def _broadcast_start(self) -> int | None:
        """The round after which clients receive the average instead of the model. None without a broadcast."""
        choice = self.state.choice
        if choice is None and self.federation.broadcast is not None:
            choice = self.federation.broadcast.first()
        if choice is None or choice.start is None:
            return None
        # The rounds before a fork were the source's, whatever it sent.
        return max(choice.start, self.tally.forked or 0)

    def _title(self) -> str:
        title = f"{self.state.round} rounds"
        if self.interrupted:
            title = f"interrupted after {title}"
        if self.folder is not None:
            title += f", in {self.folder}"
        return f"Result: {title}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The heads, and a row for each model. If there are many models, only the first ones."""
        criterion = metric_of(self.summary)
        columns = ["model", *(head.replace("\n", " ") for head in heads(self.summary))]
        rows = [[name, *cells(name, numbers, criterion)] for name, numbers in self.summary["models"].items()]
        left = len(rows) - MOST_ROWS
        if left > 0:
            empty = [""] * (len(columns) - 1)
            rows = [*rows[:MOST_ROWS], [f"and {left} more", *empty]]
        return columns, rows
