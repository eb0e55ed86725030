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
from ...vector.norms import is_statistic
from ...vector.vector_files import VectorFile
from .arrays import Tensors

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
        _check_parts(latest, first, "Averaged.latest", list(latest))
        no_weights = {name for name in first if _is_unit_vector(name, first)}
        for part in latest:
            no_weights |= _arrays_in(part, first)
        members = {name: _members(average, first) - no_weights for name, average in averages.items()}
        in_any: set[str] = set().union(*members.values())
        averaged = {name: tensor for name, tensor in first.items() if name in in_any}
        self._groups = grouped(averaged, averages, members, every=0, folder=folder)

    def observe(self, model: Tensors, round: int) -> None:
        """Show the model of `round`, which is finite, to all averages."""
        for group in self._groups:
            group.observe(group.pieces(model), round, but=set())

    def count(self, name: str) -> int:
        """How many models are in an average."""
        counts = [group.observers.count(group, name) for group in self._groups if name in group.averages]
        return max(counts, default=0)

    def value(self, name: str, model: Tensors) -> Tensors:
        """The average's tensors by their names; those that it does not have are the current model's."""
        average = dict(model)
        for group in self._groups:
            average |= group.value(name, model)
        return average

    def state(self) -> Vectors:
        """The averages' sums by name, without the models of past rounds."""
        state = {}
        for i, group in enumerate(self._groups):
            for name, sums in group.averages.items():
                for key, tensor in sums.items():
                    state[f"{i}/{name}/{key}"] = tensor
        return state

    def models(self) -> dict[str, Vectors | VectorFile]:
        """The models of past rounds by the names of their files."""
        models = {}
        for i, group in enumerate(self._groups):
            for past in group.past.values():
                for round in past:
                    models[_file(i, f"{PAST}/{past.trajectory.name}/{round}")] = past.part(round)
        return models

    def load(self, state: Vectors, folder: Path) -> None:
        """Fill in what `state` gave, and what `models` gave from the files in `folder`."""
        for i, group in enumerate(self._groups):
            group.load(partial(_saved_tensor, state, i), partial(_model_path, folder, i))


def _saved_tensor(state: Vectors, i: int, name: str) -> Tensor:
    return state[f"{i}/{name}"]


def _model_path(folder: Path, i: int, name: str) -> Path:
    return folder / _file(i, name)


def _file(i: int, name: str) -> str:
    return f"{i}-{name.replace('/', '-')}.safetensors"


def _check_parts(parts: Collection[str], names: Collection[str], place: str, value: object) -> None:
    """Raise `SettingError` unless each of the parts is an array or a module."""
    unknown = [part for part in parts if not _arrays_in(part, names)]
    requirement = f"no array or module is called {brief(unknown)}; there are {brief(list(names))}"
    check(not unknown, place, value, requirement)


def _members(average: Average, names: Collection[str]) -> set[str]:
    """Those of the arrays' `names` that an average has. Raises `SettingError` as `ModelAverages` does."""
    requirement = '"re-estimate" needs samples, which a strategy has not: re-estimate the statistics in evaluate_fn'
    check(average.buffers != "re-estimate", "buffers", average.buffers, requirement)
    parts = (average.part,) if isinstance(average.part, str) else average.part
    check(bool(parts), "part", average.part, "must name an array or a module, or be all")
    _check_parts([part for part in parts if part != "all"], names, "part", average.part)
    members: set[str] = set()
    if average.part == "all":
        members |= set(names)
    else:
        for part in parts:
            members |= _arrays_in(part, names)
    if not average.averages_statistics:
        members = {name for name in members if not is_statistic(name)}
    return members


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


def _arrays_in(part: str, names: Collection[str]) -> set[str]:
    """Those of the arrays' `names` that are `part`, or lie in the module `part`."""
    return {name for name in names if f"{name}.".startswith(f"{part}.")}
