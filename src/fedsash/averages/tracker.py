"""An average of the models of any PyTorch training loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..basics.arrays import Vectors
from ..basics.errors import RunError, check
from ..basics.layout import Layout
from ..basics.norms import re_estimate
from ..basics.shown import Shown
from .base import Average
from .observer import Observer
from .observers import Observers

ONLY = "average"
PAST = "past/"


class Tracker(Shown):
    """Observes a module during training and keeps an average of its parameters and statistics (BatchNorm).

        tracker = Tracker(Window(100), model)
        for epoch in range(300):
            train(model)
            tracker.update()
        with tracker.applied():
            evaluate(model)

    Call `update` after each epoch, or after each step: each call is one round for the average. It never changes the
    module. Raises `ModelError` if the module does not fit a `Layout`: it must have one floating-point type. What is
    frozen when the tracker is made, parameters and BatchNorm layers, is not averaged. `average.buffers` says which
    running statistics the average has.
    """

    def __init__(self, average: Average, module: nn.Module) -> None:
        check(isinstance(average, Average), "Tracker.average", average, "must be an average, such as Window(100)")
        check(isinstance(module, nn.Module), "Tracker.module", module, "must be an nn.Module")
        self.module = module
        self.layout = Layout(module)
        self.average = average
        self.observers = Observers({ONLY: Observer.of(average, self.layout)})
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
        """The average `[D]`, or the module's own values while nothing has been observed."""
        return self.observers.value(self, ONLY, self.layout.flatten(self.module))

    @contextmanager
    def applied(self, batches: Iterable[Any] | None = None) -> Iterator[nn.Module]:
        """The module with the average in place of its values; at the end they are restored, bitwise.

        An average with `buffers = "re-estimate"` needs `batches`: its statistics are then those of these inputs. Of a
        batch that is a tuple or a list, as a loader gives it, the first element is the input.
        """
        self._check(batches)
        with self.layout.applied(self.module, self.value()) as module:
            if batches is not None:
                re_estimate(module, self.layout.norms, batches, _pass)
            yield module

    def copy_to(self, module: nn.Module, batches: Iterable[Any] | None = None) -> None:
        """Write the average into another module of the same architecture; `batches` as in `applied`."""
        self._check(batches)
        self.layout.load(module, self.value())
        if batches is not None:
            re_estimate(module, self.layout.norms, batches, _pass)

    def _check(self, batches: Iterable[Any] | None) -> None:
        renews = self.average.buffers == "re-estimate"
        right = 'only for an average with buffers = "re-estimate"'
        check(renews or batches is None, "Tracker: batches", batches, right)
        right = 'must be given: the average has buffers = "re-estimate"'
        check(batches is not None or not renews or not self.layout.norms, "Tracker: batches", batches, right)

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


def _pass(module: nn.Module, batch: Any) -> None:
    """Pass a batch through a module."""
    module(batch[0] if isinstance(batch, tuple | list) else batch)
