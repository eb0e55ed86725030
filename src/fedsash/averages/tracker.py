"""An average of the models of any PyTorch training loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..basics.arrays import Vectors
from ..basics.errors import RunError, check
from ..basics.layout import Layout
from ..basics.shown import Shown
from .base import Average
from .observer import Observer
from .observers import Observers

ONLY = "average"
PAST = "past/"


class Tracker(Shown):
    """Observes a module during training and keeps an average of its parameters.

        tracker = Tracker(Window(100), model)
        for epoch in range(300):
            train(model)
            tracker.update()
        with tracker.applied():
            evaluate(model)

    Call `update` after each epoch, or after each step: each call is one round for the average. It never changes the
    module. Raises `ValueError` if the module does not fit a `Layout`: it must have one floating-point type and no
    BatchNorm. Parameters that are frozen when the tracker is made are not averaged.
    """

    def __init__(self, average: Average, module: nn.Module) -> None:
        check(isinstance(average, Average), "Tracker.average", average, "must be an average, such as Window(100)")
        check(isinstance(module, nn.Module), "Tracker.module", module, "must be an nn.Module")
        self.module = module
        self.layout = Layout(module)
        self.average = average
        self.observers = Observers({ONLY: Observer(average, self.layout.ranges(average.part))})
        self.averages, self.past = self.observers.init(self.layout.flatten(module))
        self.round = 0

    def facts(self) -> dict[str, object]:
        """The facts that `repr` shows; `models` is the number of models in the average."""
        models = self.observers.count(self, ONLY)
        return {"average": self.average, "module": self.module, "updates": self.round, "models": models}

    def update(self) -> None:
        """Observe the module as it is now; each call counts as one round."""
        self.round += 1
        self.observers.observe(self, self.layout.flatten(self.module), self.round)

    def value(self) -> Tensor:
        """The average `[D]`, or the module's own parameters while nothing has been observed."""
        return self.observers.value(self, ONLY, self.layout.flatten(self.module))

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """The module with the average in place of its parameters; at the end they are restored, bitwise."""
        with self.layout.applied(self.module, self.value()) as module:
            yield module

    def copy_to(self, module: nn.Module) -> None:
        """Write the average into another module of the same architecture."""
        self.layout.load(module, self.value())

    def state_dict(self) -> Vectors:
        """The round, the average's state and its past models as named tensors, for `torch.save` or safetensors.

        The tensors are not copies.
        """
        models = {f"{PAST}{round}": w for name in self.past for round, w in self.past[name].items()}
        return {"round": torch.tensor(self.round), **self.averages[ONLY], **models}

    def load_state_dict(self, saved: Vectors) -> None:
        """Continue from a `state_dict` of a tracker of the same average; raises `RunError` if it is of another."""
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
