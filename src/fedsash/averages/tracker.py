"""Averages alone, in any PyTorch training loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..layout import Layout
from .base import Average, State
from .observer import Observer


class Tracker:
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
        self.observer = Observer(average, self.layout.ranges(average.part))
        self.state: State = self.observer.init(self.layout.flatten(module))
        self.round = 0

    def update(self) -> None:
        """Observe the module as it is now; this counts as one round more."""
        self.round += 1
        self.state = self.observer.observe(self.state, self.layout.flatten(self.module), self.round)

    def value(self) -> Tensor:
        """The average `[D]`; the module itself as long as nothing has been observed."""
        return self.observer.value(self.state, self.layout.flatten(self.module))

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """The module with the average in place of its parameters; afterwards they are back, bitwise."""
        with self.layout.applied(self.module, self.value()) as module:
            yield module

    def copy_to(self, module: nn.Module) -> None:
        """Write the average into another module of the same architecture."""
        self.layout.load(module, self.value())

    def state_dict(self) -> State:
        """Round and average as named tensors, for `torch.save` or safetensors; not copies."""
        return {"round": torch.tensor(self.round), **self.state}

    def load_state_dict(self, saved: State) -> None:
        """Go on from a `state_dict` of a tracker of the same average; raises `ValueError` if it is of another."""
        expected = {name: t.shape for name, t in self.state_dict().items()}
        found = {name: t.shape for name, t in saved.items()}
        if found != expected:
            raise ValueError(f"the saved state is not one of {self.observer.average}: {found} instead of {expected}")
        self.round = int(saved["round"])
        for name, tensor in self.state.items():
            tensor.copy_(saved[name])
