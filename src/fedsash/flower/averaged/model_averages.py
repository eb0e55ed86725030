"""Averages of models that are named tensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from torch import Tensor

from ...averages import Average
from ...averages.group import PAST, grouped
from ...settings.errors import brief, check
from ...vector.arrays import Vectors
from ...vector.vector_files import VectorFile
from .arrays import Tensors

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""PyTorch's names of BatchNorm's statistics."""
UNIT_VECTORS = re.compile(r"(?P<parametrization>.*parametrizations\.\w+\.)\d+\._[uv]|(?P<hook>.+)_[uv]")
"""PyTorch's names of spectral norm's vectors: those of its parametrization, and those of its older hook."""


class ModelAverages:
    """Averages by their names, of models like `first`. Tensors of one type are one vector, which lies in pieces.

    An average's `part` is `"all"`, or names of arrays or modules. Its `buffers` say what becomes of arrays with
    PyTorch's names of statistics. Models of past rounds on disk lie in `folder`. Raises `SettingError` if the model has
    no such part, or for `"re-estimate"`. Arrays and modules that `latest` names are in no average.
    """

    def __init__(
        self, averages: Mapping[str, Average], first: Tensors, folder: Path | None, latest: Collection[str] = ()
    ) -> None:
        unknown = [name for name in latest if not any(_belongs(each, name) for each in first)]
        right = f"no array or module is called {brief(unknown)}; there are {brief(list(first))}"
        check(not unknown, "Averaged.latest", list(latest), right)
        no_weights = {name for name in first if _is_unit_vector(name, first)}
        no_weights |= {name for name in first if any(_belongs(name, each) for each in latest)}
        members = {name: _members(average, list(first)) - no_weights for name, average in averages.items()}
        kept = {name: tensor for name, tensor in first.items() if any(name in each for each in members.values())}
        self._groups = grouped(kept, averages, members, every=0, folder=folder)

    def observe(self, model: Tensors, round: int) -> None:
        """Show the model of `round`, which is finite, to all averages."""
        for group in self._groups:
            group.observe(group.pieces(model), round, but=set())

    def count(self, name: str) -> int:
        """How many models are in an average."""
        return max((group.observers.count(group, name) for group in self._groups if name in group.averages), default=0)

    def value(self, name: str, model: Tensors) -> Tensors:
        """The average; what it does not have is of the current model."""
        return model | {n: tensor for group in self._groups for n, tensor in group.value(name, model).items()}

    def state(self) -> Vectors:
        """All that the averages remember but models of past rounds."""
        return {
            f"{i}/{name}/{key}": tensor
            for i, group in enumerate(self._groups)
            for name, state in group.averages.items()
            for key, tensor in state.items()
        }

    def models(self) -> dict[str, Vectors | VectorFile]:
        """The models of past rounds by the names of their files."""
        return {
            _file(i, f"{PAST}/{past.trajectory.name}/{round}"): past.part(round)
            for i, group in enumerate(self._groups)
            for past in group.past.values()
            for round in past
        }

    def load(self, state: Vectors, folder: Path) -> None:
        """Fill in what `state` gave, and what `models` gave from the files in `folder`."""
        for i, group in enumerate(self._groups):
            group.load(partial(_saved, state, i), partial(_model, folder, i))


def _saved(state: Vectors, i: int, name: str) -> Tensor:
    return state[f"{i}/{name}"]


def _model(folder: Path, i: int, name: str) -> Path:
    return folder / _file(i, name)


def _file(i: int, name: str) -> str:
    return f"{i}-{name.replace('/', '-')}.safetensors"


def _members(average: Average, names: list[str]) -> set[str]:
    """The names of the arrays that an average has."""
    right = '"re-estimate" needs samples, which a strategy has not: re-estimate the statistics in evaluate_fn'
    check(average.buffers != "re-estimate", "buffers", average.buffers, right)
    asked = (average.part,) if isinstance(average.part, str) else average.part
    unknown = [name for name in asked if name != "all" and not any(_belongs(each, name) for each in names)]
    right = f"no array or module is called {brief(unknown)}; there are {brief(names)}"
    check(bool(asked) and not unknown, "part", average.part, right)
    chosen = {name for name in names if average.part == "all" or any(_belongs(name, each) for each in asked)}
    return chosen if average.buffers == "average" else {n for n in chosen if n.split(".")[-1] not in STATISTICS}


def _is_unit_vector(name: str, names: Collection[str]) -> bool:
    """Whether an array is a vector of spectral norm, beside which lies the weight that it is of.

    The older weight norm has a `weight_v`, too, which is trained.
    """
    match = UNIT_VECTORS.fullmatch(name)
    if match is None:
        return False
    if match["parametrization"]:
        return f"{match['parametrization']}original" in names
    return f"{match['hook']}_orig" in names


def _belongs(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")
