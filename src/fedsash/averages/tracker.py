"""Averages alone, in any PyTorch training loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..basics.arrays import Vectors
from ..basics.errors import RunError
from ..basics.layout import Layout
from ..basics.shown import Shown
from .base import Average
from .observer import Observer
from .observers import Observers

ONLY = "average"
PAST = "past/"


class Tracker(Shown):
    """Follows a module through training and keeps an average of it.

        tracker = Tracker(Window(100), model)
        for epoch in range(300):
            train(model)
            tracker.update()
        with tracker.applied():
            evaluate(model)

    `update` is to be called after each epoch or step, whichever the average's rounds mean; it never changes the
    module. The module must suit `Layout`: one floating-point type, no BatchNorm; parameters that are frozen when the
    tracker is made are not averaged.
    """

    def __init__(self, average: Average, module: nn.Module) -> None:
        self.module = module
        self.layout = Layout(module)
        self.average = average
        self.observers = Observers({ONLY: Observer(average, self.layout.ranges(average.part))})
        self.averages, self.past = self.observers.init(self.layout.flatten(module))
        self.round = 0

    def facts(self) -> dict[str, object]:
        """What is shown of it; `models` is how many are in the average."""
        models = self.observers.count(self, ONLY)
        return {"average": self.average, "module": self.module, "updates": self.round, "models": models}

    def update(self) -> None:
        """Observe the module as it is now; this counts as one round more."""
        self.round += 1
        self.observers.observe(self, self.layout.flatten(self.module), self.round)

    def value(self) -> Tensor:
        """The average `[D]`; the module itself as long as nothing has been observed."""
        return self.observers.value(self, ONLY, self.layout.flatten(self.module))

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """The module with the average in place of its parameters; afterwards they are back, bitwise."""
        with self.layout.applied(self.module, self.value()) as module:
            yield module

    def copy_to(self, module: nn.Module) -> None:
        """Write the average into another module of the same architecture."""
        self.layout.load(module, self.value())

    def state_dict(self) -> Vectors:
        """Round, average and the past models that it needs as named tensors, for `torch.save` or safetensors; not
        copies."""
        models = {f"{PAST}{round}": w for name in self.past for round, w in self.past[name].items()}
        return {"round": torch.tensor(self.round), **self.averages[ONLY], **models}

    def load_state_dict(self, saved: Vectors) -> None:
        """Go on from a `state_dict` of a tracker of the same average; raises `ValueError` if it is of another."""
        expected = {name: t.shape for name, t in self.state_dict().items() if not name.startswith(PAST)}
        found = {name: t.shape for name, t in saved.items() if not name.startswith(PAST)}
        if found != expected:
            raise RunError(f"the saved state is not one of {self.average}: {found} instead of {expected}")
        self.round = int(saved["round"])
        for name, tensor in self.averages[ONLY].items():
            tensor.copy_(saved[name])
        for past in self.past.values():
            past.clear()
            past.fill(self.average.needs(self.averages[ONLY]), lambda round: saved[f"{PAST}{round}"])
