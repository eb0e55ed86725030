"""PyTorch's `AveragedModel`, whose average goes on in a tracker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from ..settings.errors import RunError, check
from ..vector.wrapped import plain
from .group import TensorGroup

PREFIX = "module."
"""What `AveragedModel` puts before the names of a model's tensors, and DataParallel in it once more."""


def take_over(groups: Sequence[TensorGroup], name: str, state: Mapping[str, Tensor]) -> None:
    """Let the average `name` of these groups go on from the state dict of an `AveragedModel`.

    Raises `SettingError` if it is none, `RunError` if it does not fit; then nothing is changed.
    """
    is_state = isinstance(state, Mapping) and isinstance(state.get("n_averaged"), Tensor)
    requirement = "must be the state_dict() of an AveragedModel, which has n_averaged"
    check(is_state, "Tracker.load_averaged_model: state", state, requirement)
    groups = [group for group in groups if name in group.averages]
    if not groups:
        raise RunError(f"the average {name} has nothing that trains, so it can't go on from an AveragedModel")
    known = {tensor for group in groups for tensor in group.shapes}
    averaged = _by_known_names(state, known)
    for group in groups:
        group.check_values(name, averaged)
    count = int(state["n_averaged"])
    if not count:
        begun = any(group.observers.count(group, name) for group in groups)
        if begun:
            raise RunError(f"the AveragedModel has averaged no model, and the average {name} has: make a new tracker")
        return
    for group in groups:
        group.take_over(name, averaged, count)


def _by_known_names(state: Mapping[str, Tensor], known: Collection[str]) -> dict[str, Tensor]:
    """The tensors of a state without as many prefixes as it takes for some of their names to be `known`."""
    tensors = plain(state)
    while True:
        inner: dict[str, Tensor] = {}
        for name, value in tensors.items():
            if name.startswith(PREFIX):
                inner[name.removeprefix(PREFIX)] = value
        if not inner:
            return tensors
        if inner.keys() & known:
            return inner
        tensors = inner
