"""Tensors of a module that are averaged together, and the states of their averages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..settings.errors import ModelError, RunError
from ..vector.arrays import Vectors
from ..vector.exact_sums import exact_device
from ..vector.layout import joined
from ..vector.pieces import Pieces
from ..vector.wrapped import local
from .afterwards import SUM, Approximation, KeptSums
from .base import Average
from .lent import check_fits
from .observers import Observer, Observers
from .profiles import Profile

RUNNING = "running sum"
"""The name of the sum of all models. A user's average can't have it: its name can't have a space."""

PAST = "past"


class TensorGroup:
    """Tensors that are averaged since the same update, as numbers of `dtype`. They stay where they are, only read.

    `members` has the names of the tensors that each average is of; an average of none of them is not in `observers`.
    `averages` and `past` are those of `AverageStates`. If `every` is above 0, running sums are kept, too. Models on
    disk lie in `folder`, or in the system's folder for temporary files. All that is kept lies on `device`; if it is
    None, on that of the tensors, which it follows.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        dtype: torch.dtype,
        averages: Mapping[str, Average],
        members: Mapping[str, set[str]],
        every: int,
        folder: Path | None = None,
        device: torch.device | None = None,
    ) -> None:
        self._device = device
        self.shapes = {name: local(tensor.detach()).shape for name, tensor in tensors.items()}
        self.dtype = dtype
        self.members: dict[str, list[str]] = {}
        for owner, chosen in members.items():
            self.members[owner] = [name for name in tensors if name in chosen]
        self._settings = {name: average for name, average in averages.items() if self.members[name]}
        lengths = [shape.numel() for shape in self.shapes.values()]
        observers: dict[str, Observer] = {}
        for name, average in self._settings.items():
            inside = [tensor in members[name] for tensor in tensors]
            observers[name] = Observer(average, joined(lengths, inside))
        if every:
            self._settings[RUNNING] = SUM
            observers[RUNNING] = Observer(SUM, [(0, sum(lengths))])
        self.observers = Observers(observers)
        w = self._whole(tensors)
        self.averages, self.past = self.observers.init(w, folder)
        self.sums = KeptSums(every, w) if every else None

    def pieces(self, tensors: Mapping[str, Tensor]) -> Pieces:
        """The vector `[d]` of these tensors, where they lie in memory.

        Raises `ModelError` if one of them is gone or has another shape, or if they hold no values.
        """
        pieces: list[Tensor] = []
        for name, shape in self.shapes.items():
            value = local(tensors[name].detach()) if name in tensors else None
            if value is None or value.shape != shape:
                raise ModelError(
                    f"the module has no {name} of shape {list(shape)} any more: make a new tracker for a changed module"
                )
            if value.dtype != self.dtype:
                value = value.to(self.dtype)
            pieces.append(value.reshape(-1))
        if pieces[0].is_meta:
            raise ModelError("the module is on the device meta, which holds no values to average")
        return Pieces(pieces)

    def _whole(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The vector `[d]` of these tensors as one tensor, where the averages are kept."""
        return self._at_home(self.pieces(tensors)).whole()

    def _at_home(self, w: Pieces) -> Pieces:
        """The vector `w` `[d]` where the averages are kept."""
        if self._device is None:
            return w
        return w.on(self._device)

    def check_types(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise `ModelError` if a module that was widened would be rounded; the averages so far can still be read."""
        types = {tensors[name].dtype for name in self.shapes if name in tensors}
        types.discard(self.dtype)
        for dtype in types:
            if torch.promote_types(dtype, self.dtype) != self.dtype:
                raise ModelError(f"the averages are {self.dtype}, which would round {dtype}: make a new tracker")

    def not_finite(self, w: Pieces, round: int, but: set[str]) -> set[str]:
        """The averages, except `but`, that leave out the model `w` `[d]` of `round`. Then all groups leave it out."""
        return self.observers.not_finite(self.averages.keys() - but, w, round)

    def observe(self, w: Pieces, round: int, but: set[str]) -> None:
        """Show `w` `[d]` to all averages, except `but`, as the model of `round`; keep the running sum if it is time."""
        w = self._at_home(w)
        self._follow(w.pieces[0])
        names = [name for name in self.averages if name not in but]
        self.observers.take(names, self, w, round)
        if self.sums is not None:
            self.sums.observe(self.averages[RUNNING], round)

    def _follow(self, like: Tensor) -> None:
        """Move the sums to the device of `like`. Models of past rounds stay where they are."""
        for state in self.averages.values():
            for name, vector in state.items():
                if vector.dtype == torch.float64:
                    state[name] = vector.to(exact_device(like))
                elif vector.is_floating_point():
                    state[name] = vector.to(like.device)

    def value(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of an average, as new ones; empty if it is of none of these tensors."""
        if name not in self.averages:
            return {}
        w = self.observers.value(self, name, self._whole(tensors))
        return self.split(w, self.members[name])

    def window(self, at: int, begins: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean of the models after the rounds `begins + 1` to `at`; empty if there are none of these tensors."""
        if self.sums is None:
            return {}
        mean = self.sums.mean(begins, at, self._whole(tensors))
        if mean is None:
            return {}
        return self.split(mean, list(self.shapes))

    def approximation(self, profile: Callable[[int], Profile], at: int, tensors: Mapping[str, Tensor]) -> Approximation:
        """The average whose weights of n models are `profile(n)`, of the models up to the round `at`.

        It is empty if there are none of these tensors.
        """
        if self.sums is None:
            return Approximation({}, 0.0)
        result = self.sums.approximation(profile, at, self._whole(tensors))
        if result is None:
            return Approximation({}, 0.0)
        w, error = result
        return Approximation(self.split(w, list(self.shapes)), error)

    def split(self, w: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """The tensors of these names as views of `w` `[d]`."""
        lengths = [shape.numel() for shape in self.shapes.values()]
        views: dict[str, Tensor] = {}
        for (name, shape), piece in zip(self.shapes.items(), torch.split(w, lengths), strict=True):
            views[name] = piece.view(shape)
        return {name: views[name] for name in names}

    def check_values(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Raise `RunError` unless an average can go on from these values of its tensors, by their names."""
        shapes = {member: list(self.shapes[member]) for member in self.members[name]}
        value_shapes = {member: list(local(values[member]).shape) for member in shapes if member in values}
        check_fits(f"the state does not fit the average {name}", shapes, value_shapes)
        for member in shapes:
            if not Pieces([local(values[member].detach()).reshape(-1)]).finite():
                raise RunError(f"the average {name} can't go on from {member}, which is not finite")

    def take_over(self, name: str, values: Mapping[str, Tensor], count: int) -> None:
        """Let an average go on from these values of its tensors, which have the average of `count` models."""
        pieces = [local(values[member].detach()).reshape(-1) for member in self.members[name]]
        self._settings[name].take_over(self.averages[name], torch.cat(pieces), count)

    def not_finite_in(self, name: str, past: bool) -> list[str]:
        """The tensors of which an average's state has a value that is not finite; of its `past` models, too."""
        if name not in self.averages:
            return []
        members = self.members.get(name, [])
        lengths = [self.shapes[member].numel() for member in members]
        vectors = [vector for vector in self.averages[name].values() if vector.is_floating_point()]
        if past and name in self.past:
            vectors += self.past[name].values()
        spoilt: dict[str, None] = {}  # in the order in which they are met, each once
        for vector in vectors:
            if vector.shape != (sum(lengths),) or Pieces([vector]).finite():
                continue
            for member, part in zip(members, torch.split(vector, lengths), strict=True):
                if not Pieces([part]).finite():
                    spoilt[member] = None
        return list(spoilt)

    def about(self) -> dict[str, Any]:
        """The names and shapes of its tensors, which must agree with the module's, its type and its members."""
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {"shapes": shapes, "type": str(self.dtype).removeprefix("torch."), "members": self.members}

    def tensors(self) -> Vectors:
        """Its state as named tensors, which are not copies."""
        named: Vectors = {}
        for name, state in self.averages.items():
            for key, tensor in state.items():
                named[f"{name}/{key}"] = tensor
        for past in self.past.values():
            for round, w in past.items():
                named[f"{PAST}/{past.trajectory.name}/{round}"] = w
        if self.sums is not None:
            named |= self.sums.tensors()
        return named

    def load(
        self,
        saved: Callable[[str], Tensor],
        model: Callable[[str], Tensor | Path] | None = None,
        but: Collection[str] = (),
    ) -> None:
        """Fill its state, except that of the averages `but`.

        `saved(name)` gives the tensor that `tensors` has under this name. `model(name)` gives a past model, or the file
        of a saved state that holds it; None means that `saved` gives these, too.
        """
        for name, state in self.averages.items():
            if name in but:
                continue
            for key, tensor in state.items():
                value = saved(f"{name}/{key}").to(tensor.device, tensor.dtype, copy=True)
                state[key] = value.view(tensor.shape)
        past_model = model or saved
        for name, past in self.past.items():
            needed = self._settings[name].needs(self.averages[name])
            past.fill(needed, partial(_model_of, past_model, past.trajectory.name))
        if self.sums is not None:
            self.sums.load(saved)


def _model_of(model: Callable[[str], Tensor | Path], trajectory: str, round: int) -> Tensor | Path:
    return model(f"{PAST}/{trajectory}/{round}")


def grouped(
    tensors: Mapping[str, Tensor],
    averages: Mapping[str, Average],
    members: Mapping[str, set[str]],
    every: int,
    folder: Path | None = None,
    device: torch.device | None = None,
) -> list[TensorGroup]:
    """A group for each floating-point type of the tensors. Integers, as numbers of batches, go with the widest.

    If this has 16 bits, which hold no number of batches above 65,504, they are a group of float32. Raises `ModelError`
    if the tensors are on several devices.
    """
    if not tensors:
        return []
    devices = sorted({str(tensor.device) for tensor in tensors.values()})
    if len(devices) > 1:
        raise ModelError(f"the module is on several devices ({', '.join(devices)}): make a tracker for each one's part")
    by_type: dict[torch.dtype, dict[str, Tensor]] = {}
    integers: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            by_type.setdefault(tensor.dtype, {})[name] = tensor
        else:
            integers[name] = tensor
    if integers:
        widest = max(by_type, key=lambda dtype: dtype.itemsize, default=torch.float32)
        if widest.itemsize < 4:
            widest = torch.float32
        by_type.setdefault(widest, {}).update(integers)
    groups: list[TensorGroup] = []
    for dtype, of_type in by_type.items():
        groups.append(TensorGroup(of_type, dtype, averages, members, every, folder, device))
    return groups
