"""The result of a run: its numbers by model, and its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...basics.errors import FedsashError
from ...basics.shown import Shown, html_table, text_table
from ...state import State
from ..summaries import metric_of
from ..table import cells, heads, notes
from .driver import Driver

MOST_ROWS = 7


class UnknownModelError(FedsashError, KeyError):
    """A run has no model of that name. The message lists the names that exist."""

    def __init__(self, name: str, there: Sequence[str]) -> None:
        super().__init__(name, there)

    def __str__(self) -> str:
        name, there = self.args
        return f"there is no model {name!r} in this result; there are: {', '.join(there) or 'none'}"


@dataclass(frozen=True, repr=False)
class BestRound(Shown):
    """The round after which a model was best on the split `chosen_on`, and its value of the metric that decides."""

    round: int
    value: float
    chosen_on: str


@dataclass(frozen=True, repr=False)
class ModelResult(Shown):
    """The results of one model of a run, by the metric that decides. See `summaries.summarise` for each field."""

    value: float | None
    last_mean: float | None
    last_std: float | None
    best: BestRound | None
    rounds_to_target: int | None
    gain: float | None


@dataclass(repr=False)
class Result:
    """The result of a run: every recorded metric, the summary, the last state, and the folder if there is one.

    `result["wima"]` gives the numbers of a model, and `result.model("wima")` the model itself, as a new module.
    `models` lists the names of all models: the global model `"model"`, each average, and, if there are held-out data
    (see `Evaluation.best_on`), the best version of each so far, such as `"wima-best"`. An unknown name raises
    `UnknownModelError`, a `KeyError`. `interrupted` says that rounds are left, and `signal` is the number of the signal
    that asked to stop, or 0.
    """

    history: list[dict[str, Any]]
    summary: dict[str, Any]
    state: State
    federation: Driver = field(compare=False)
    folder: Path | None
    interrupted: bool = False
    signal: int = 0

    def __getitem__(self, name: str) -> ModelResult:
        """The numbers of a model that was evaluated."""
        found = self.summary["models"]
        if name not in found:
            raise UnknownModelError(name, list(found))
        best = found[name]["best"] and BestRound(**found[name]["best"])
        return ModelResult(**found[name] | {"best": best})

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models of the run."""
        return tuple(self.vectors())

    def vectors(self) -> dict[str, Tensor]:
        """Each model `[D]`, by its name."""
        best = {f"{name}-best": best.w for name, best in self.state.best.items()}
        return self.federation.models(self.state) | best

    def model(self, name: str) -> nn.Module:
        """A model as a new module, with the buffers of the module that was given to the federation."""
        vectors = self.vectors()
        if name not in vectors:
            raise UnknownModelError(name, list(vectors))
        return self.federation.module_of(vectors[name])

    def state_dict(self, name: str) -> dict[str, Tensor]:
        """The state dict of a model. The plain module can load it."""
        return self.model(name).state_dict()

    def __repr__(self) -> str:
        """A few lines of text. If there are many models, only the first ones are shown."""
        return "\n".join([self._title(), "", *text_table(*self._table()), *notes(self.summary)])

    def _repr_html_(self) -> str:
        more = "".join(f"<p>{note}</p>" for note in notes(self.summary))
        return html_table(self._title(), *self._table()) + more

    def _title(self) -> str:
        place = f", in {self.folder}" if self.folder is not None else ""
        return f"Result: {'interrupted after ' * self.interrupted}{self.state.round} rounds{place}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The heads, and a row for each model. If there are many models, only the first ones."""
        criterion, head = metric_of(self.summary), [text.replace("\n", " ") for text in heads(self.summary)]
        rows = [[name, *cells(name, found, criterion)] for name, found in self.summary["models"].items()]
        left = len(rows) - MOST_ROWS
        more = [[f"and {left} more", *[""] * len(head)]] if left > 0 else []
        return ["model", *head], rows[:MOST_ROWS] + more
