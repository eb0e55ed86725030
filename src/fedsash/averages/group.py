"""Tensors of a module that are averaged together, and the states of their averages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..settings.errors import ModelError
from ..vector.arrays import Vectors
from ..vector.exact_sums import exact_device
from ..vector.layout import joined
from ..vector.pieces import Pieces
from ..vector.wrapped import local
from .afterwards import SUM, KeptSums
from .base import Average
from .observers import Observer, Observers

RUNNING = "running sum"
"""The name of the sum of all models. A user's average can't have it: its name can't have a space."""

PAST = "past"


class Group:
    """Tensors that are averaged since the same update, as numbers of `dtype`. They stay where they are, only read.

    `members` has the names of the tensors that each average is of; an average of none of them is not in `observers`.
    `averages` and `past` are those of `AverageStates`. If `every` is above 0, running sums are kept, too. Models on
    disk lie in `folder`, or in the system's folder for temporary files.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        dtype: torch.dtype,
        averages: Mapping[str, Average],
        members: Mapping[str, set[str]],
        every: int,
        folder: Path | None = None,
    ) -> None:
        self.shapes = {name: local(tensor.detach()).shape for name, tensor in tensors.items()}
        self.dtype = dtype
        self.members = {name: [each for each in tensors if each in chosen] for name, chosen in members.items()}
        lengths = [shape.numel() for shape in self.shapes.values()]
        observers = {
            name: Observer(average, joined(lengths, [each in members[name] for each in tensors]))
            for name, average in averages.items()
            if self.members[name]
        }
        if every:
            observers[RUNNING] = Observer(SUM, [(0, sum(lengths))])
        self._averages = {name: observer.average for name, observer in observers.items()}
        self.observers = Observers(observers)
        w = self.pieces(tensors).whole()
        self.averages, self.past = self.observers.init(w, folder)
        self.sums = KeptSums(every, w) if every else None

    def pieces(self, tensors: Mapping[str, Tensor]) -> Pieces:
        """The vector `[d]` of these tensors, where they lie in memory."""
        own = [local(tensors[name].detach()) for name in self.shapes if name in tensors]
        if [tensor.shape for tensor in own] != list(self.shapes.values()):
            name = next(n for n, shape in self.shapes.items() if n not in tensors or local(tensors[n]).shape != shape)
            shape = list(self.shapes[name])
            raise ModelError(
                f"the module has no {name} of shape {shape} any more: make a new tracker for a changed module"
            )
        if own[0].is_meta:
            raise ModelError("the module is on the device meta, which holds no values to average")
        return Pieces([(t if t.dtype == self.dtype else t.to(self.dtype)).reshape(-1) for t in own])

    def check_types(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise `ModelError` if a module that was widened would be rounded; the averages so far can still be read."""
        for dtype in {tensors[name].dtype for name in self.shapes if name in tensors} - {self.dtype}:
            if torch.promote_types(dtype, self.dtype) != self.dtype:
                raise ModelError(f"the averages are {self.dtype}, which would round {dtype}: make a new tracker")

    def not_finite(self, w: Pieces, round: int, but: set[str]) -> set[str]:
        """The averages, except `but`, that leave out the model `w` `[d]` of `round`. Then all groups leave it out."""
        return self.observers.not_finite(self.averages.keys() - but, w, round)

    def observe(self, w: Pieces, round: int, but: set[str]) -> None:
        """Show `w` `[d]` to all averages, except `but`, as the model of `round`; keep the running sum if it is time."""
        self._follow(w.pieces[0])
        self.observers.take([name for name in self.averages if name not in but], self, w, round)
        if self.sums is not None:
            self.sums.observe(self.averages[RUNNING], round)

    def _follow(self, like: Tensor) -> None:
        """Move the sums to the device of the tensors. Models of past rounds stay where they are."""
        for state in self.averages.values():
            for name, vector in state.items():
                if vector.is_floating_point():
                    state[name] = vector.to(exact_device(like) if vector.dtype == torch.float64 else like.device)

    def value(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of an average, as new ones; empty if it is of none of these tensors."""
        if name not in self.averages:
            return {}
        return self.split(self.observers.value(self, name, self.pieces(tensors).whole()), self.members[name])

    def window(self, at: int, begins: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean of the models after the rounds `begins + 1` to `at`; empty if there are none of these tensors."""
        mean = None if self.sums is None else self.sums.mean(begins, at, self.pieces(tensors).whole())
        return {} if mean is None else self.split(mean, list(self.shapes))

    def split(self, w: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """The tensors of these names as views of `w` `[d]`."""
        pieces = torch.split(w, [shape.numel() for shape in self.shapes.values()])
        views = {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}
        return {name: views[name] for name in names}

    def not_finite_in(self, name: str, past: bool) -> list[str]:
        """The tensors of which an average's state has a value that is not finite; of its `past` models, too."""
        members = [each for each in self.members.get(name, ()) if name in self.averages]
        lengths = [self.shapes[each].numel() for each in members]
        kept = [vector for vector in self.averages.get(name, {}).values() if vector.is_floating_point()]
        if past and name in self.past:
            kept += self.past[name].values()
        spoilt: dict[str, bool] = {}
        for vector in kept:
            if vector.shape == (sum(lengths),) and not Pieces([vector]).finite():
                parts = zip(members, torch.split(vector, lengths), strict=True)
                spoilt |= {each: True for each, part in parts if not Pieces([part]).finite()}
        return list(spoilt)

    def about(self) -> dict[str, Any]:
        """What its state is of: names and shapes, which must agree with the module's, its type and its members."""
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {"shapes": shapes, "type": str(self.dtype).removeprefix("torch."), "members": self.members}

    def tensors(self) -> Vectors:
        """Its state as named tensors, which are not copies."""
        found = {f"{name}/{key}": t for name, state in self.averages.items() for key, t in state.items()}
        for past in self.past.values():
            found |= {f"{PAST}/{past.trajectory.name}/{round}": w for round, w in past.items()}
        return found | (self.sums.tensors() if self.sums is not None else {})

    def load(
        self,
        saved: Callable[[str], Tensor],
        model: Callable[[str], Tensor | Path] | None = None,
        but: Collection[str] = (),
    ) -> None:
        """Fill its state, but of some averages; `saved(name)` gives the tensor that `tensors` has under this name, and
        `model(name)` a past model, or a saved state's file of it (None: as `saved`)."""
        for name, state in self.averages.items():
            for key, tensor in state.items() if name not in but else ():
                state[key] = saved(f"{name}/{key}").to(tensor.device, tensor.dtype, copy=True).view(tensor.shape)
        for name, past in self.past.items():
            needed = self._averages[name].needs(self.averages[name])
            place = f"{PAST}/{past.trajectory.name}"
            past.fill(needed, partial(_row, model or saved, place))
        if self.sums is not None:
            self.sums.load(saved)


def _row(model: Callable[[str], Tensor | Path], place: str, round: int) -> Tensor | Path:
    return model(f"{place}/{round}")


def grouped(
    tensors: Mapping[str, Tensor],
    averages: Mapping[str, Average],
    members: Mapping[str, set[str]],
    every: int,
    folder: Path | None = None,
) -> list[Group]:
    """A group for each floating-point type of the tensors. Integers, as numbers of batches, go with the widest.

    If this has 16 bits, which hold no number of batches above 65,504, they are a group of float32. Raises `ModelError`
    if the tensors are on several devices.
    """
    if not tensors:
        return []
    if len(devices := sorted({str(t.device) for t in tensors.values()})) > 1:
        raise ModelError(f"the module is on several devices ({', '.join(devices)}): make a tracker for each one's part")
    kinds = list(dict.fromkeys(t.dtype for t in tensors.values() if t.is_floating_point()))
    of = {kind: {n: t for n, t in tensors.items() if t.dtype == kind} for kind in kinds}
    if whole := {n: t for n, t in tensors.items() if not t.is_floating_point()}:
        widest = max(kinds, key=lambda kind: kind.itemsize, default=torch.float32)
        kind = widest if widest.itemsize >= 4 else torch.float32
        of[kind] = of.get(kind, {}) | whole
    return [Group(some, kind, averages, members, every, folder) for kind, some in of.items()]
