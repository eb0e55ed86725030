"""What a run came to: its numbers by model, and its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...basics.shown import Shown, html_table, text_table
from ...state import State
from ..table import HEADS, cells, notes
from .driver import Driver

MOST_ROWS = 7


class UnknownModelError(KeyError):
    """A run has no model of that name; the message says which there are."""

    def __init__(self, name: str, there: Sequence[str]) -> None:
        super().__init__(f"there is no model {name!r} in this result; there are: {', '.join(there) or 'none'}")

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, repr=False)
class BestRound(Shown):
    """The round in which a model was best, and its accuracy on the central test set then."""

    round: int
    accuracy: float


@dataclass(frozen=True, repr=False)
class ModelResult(Shown):
    """What one model of a run came to on the central test set; see `records.summarise` for each field."""

    accuracy: float | None
    last_mean: float | None
    last_std: float | None
    best: BestRound | None
    rounds_to_target: int | None
    gain: float | None


@dataclass(repr=False)
class Result:
    """What a run came to: every metric it recorded, its summary, its last state, and its folder if it has one.

    `result["wima"]` are the numbers of a model, `result.model("wima")` is the model itself, a module of its own.
    `models` are the names of all models: the global model, `"model"`, each average, and the best of each so far,
    `"wima-best"`. What the run does not have raises `UnknownModelError`, a `KeyError`.
    """

    history: list[dict[str, Any]]
    summary: dict[str, Any]
    state: State
    federation: Driver = field(compare=False)
    folder: Path | None
    interrupted: bool = False

    def __getitem__(self, name: str) -> ModelResult:
        """The numbers of a model that was evaluated on a test set."""
        found = self.summary["models"]
        if name not in found:
            raise UnknownModelError(name, list(found))
        best = found[name]["best"] and BestRound(**found[name]["best"])
        return ModelResult(**found[name] | {"best": best})

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that there are."""
        return tuple(self.vectors())

    def vectors(self) -> dict[str, Tensor]:
        """Each model `[D]`, by its name."""
        best = {f"{name}-best": best.w for name, best in self.state.best.items()}
        return self.federation.models(self.state) | best

    def model(self, name: str) -> nn.Module:
        """A model as a module of its own, with the buffers of the module that was given to the federation."""
        vectors = self.vectors()
        if name not in vectors:
            raise UnknownModelError(name, list(vectors))
        return self.federation.module_of(vectors[name])

    def state_dict(self, name: str) -> dict[str, Tensor]:
        """The state dict of a model, which loads into the plain module."""
        return self.model(name).state_dict()

    def __repr__(self) -> str:
        """A few lines, however many models there are."""
        return "\n".join([self._title(), "", *text_table(*self._table()), *notes(self.summary)])

    def _repr_html_(self) -> str:
        more = "".join(f"<p>{note}</p>" for note in notes(self.summary))
        return html_table(self._title(), *self._table()) + more

    def _title(self) -> str:
        place = f", in {self.folder}" if self.folder is not None else ""
        return f"Result: {'interrupted after ' * self.interrupted}{self.state.round} rounds{place}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The heads, and a row for each model; of many the first."""
        rows = [[name, *cells(name, found)] for name, found in self.summary["models"].items()]
        left = len(rows) - MOST_ROWS
        more = [[f"and {left} more", *[""] * len(HEADS)]] if left > 0 else []
        return ["model", *HEADS], rows[:MOST_ROWS] + more
