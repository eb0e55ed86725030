"""What the callbacks of Lightning and of Hugging Face's Trainer share."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.data import DataLoader

from ...settings.errors import check, check_choice, some
from ...vector.arrays import Vectors
from ...vector.randomness import draws_kept
from ...vector.wrapped import unwrapped
from ..base import Average, by_name
from ..lent import checksums, switchable, switches_kept
from ..tracker import Tracker

After = Literal["step", "epoch"]

WITHOUT_AVERAGES = "{} has no averages: they begin with the training that follows"
"""The warning for a checkpoint of a training without the callback."""


class TrackerCallback:
    """Keeps averages of the model that a trainer trains, and puts one of them into the model for evaluation.

    `averages` is one average, or several by their names. They observe the model `after` each step of the optimiser or
    after each epoch. `evaluate` names the average that is evaluated in the model's place: the first one if it is None;
    with `"model"` it is the model itself. `batches` are inputs from which averages with `buffers = "re-estimate"` get
    their statistics, each time they are evaluated or saved. No random number of the training is drawn for them.

    Warnings say where the model itself is evaluated, since the average is missing or has no model yet, and name the
    parameters that somebody else has changed between an evaluation and the next batch.

    `tracker` is the `Tracker` that does the work; None before the training begins. Raises `SettingError`.
    """

    def __init__(
        self,
        averages: Average | Mapping[str, Average],
        *,
        after: After = "step",
        evaluate: str | None = None,
        batches: Iterable[Any] | None = None,
    ) -> None:
        self.averages = by_name(averages)
        self.after = after
        self.batches = batches
        self.evaluate = evaluate if evaluate is not None else next(iter(self.averages))
        self.tracker: Tracker | None = None
        self._saved: Mapping[str, Tensor] | None = None
        self._applied = ExitStack()
        self._lent = False
        self._switched = False
        """Whether an optimiser has an `eval` or `train`, which move the parameters."""
        self._sums: dict[str, int] = {}
        """The checksums of the parameters when the last average was returned; empty after the next batch has begun."""
        check_choice("Averages.after", after, "step", "epoch")
        known = [*self.averages, "model"]
        check(self.evaluate in known, "Averages.evaluate", self.evaluate, f"must be one of {known}")
        needed = any(average.buffers == "re-estimate" for average in self.averages.values())
        right = 'must be given: an average has buffers = "re-estimate"'
        check(batches is not None or not needed, "Averages.batches", batches, right)
        right = "must be a loader or a list, which can be read again for each evaluation"
        again = hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
        again = batches is None or (again and not isinstance(batches, Iterator))
        check(again, "Averages.batches", batches, right)

    def averaged_state_dict(self, name: str | None = None) -> Vectors:
        """A copy of the module's state dict with an average in it: the first one, or that of the name."""
        tracker = self._begun()
        name = name or next(iter(self.averages))
        check(name in self.averages, "Averages: average", name, f"must be one of {', '.join(self.averages)}")
        with draws_kept(self.batches):
            return tracker.averaged_state_dict(name, batches=self._inputs(name))

    def _begun(self) -> Tracker:
        right = "there is none before the training has begun, nor where fit was called if the strategy starts processes"
        check(self.tracker is not None, "Averages.tracker", None, right)
        assert self.tracker is not None
        return self.tracker

    def _whole(self) -> bool:
        """Whether there are averages to save; a warning if an error or Ctrl-C has broken off their last update."""
        if self.tracker is None or not self.tracker.torn:
            return self.tracker is not None
        warnings.warn("an update of the averages was interrupted, so they are not saved", stacklevel=3)
        return False

    def _begin(self, module: nn.Module) -> None:
        """Average this module from now on; go on from what a checkpoint had, if one was loaded."""
        self._sums = {}
        if self.tracker is None or self.tracker.module is not unwrapped(module):
            self.tracker = Tracker(self.averages, module)
        if self._saved is not None:
            self.tracker.load_state_dict(self._saved)
            self._saved = None

    def _lend(self, module: nn.Module, optimisers: Iterable[object] = ()) -> None:
        """Put the average into the module until `_restore`; a warning if there is none, so that the model stays.

        What the optimisers are switched to meanwhile they are switched to afterwards.
        """
        if self.evaluate == "model":
            return
        if missing := self._missing(module):
            warnings.warn(f"{missing}: the model itself is evaluated", stacklevel=3)
            return
        optimisers = list(optimisers)
        with ExitStack() as stack:
            stack.enter_context(switches_kept(optimisers))
            with draws_kept(self.batches):
                stack.enter_context(self._begun().applied(self.evaluate, batches=self._inputs(self.evaluate)))
            self._applied = stack.pop_all()
        self._lent = True
        self._switched = any(switchable(getattr(each, "optimizer", each)) for each in optimisers)  # in its wrapper

    def _missing(self, module: nn.Module) -> str:
        """What prevents that the average is evaluated in place of this module; empty if nothing does."""
        if self.tracker is None:
            return "there are no averages before the training, nor where fit started other processes"
        if self.tracker.module is not unwrapped(module):
            return f"the average {self.evaluate} is of another module"
        if not self.tracker.count(self.evaluate):
            return f"the average {self.evaluate} has no model yet"
        return ""

    def _restore(self) -> None:
        """Give the module its own values back, bitwise."""
        self._applied.close()
        if self._lent and not self._switched:  # such an optimiser moves the parameters once more before a batch
            self._sums = checksums(self._trained())
        self._lent = False

    def _check_unmoved(self) -> None:
        """Before a batch: warn of parameters that somebody has moved since the average was returned."""
        if not self._sums:
            return
        now = checksums(self._trained())
        moved = [name for name, total in self._sums.items() if now.get(name, total) != total]
        self._sums = {}
        if moved:
            since = "since the average was evaluated, by another callback or hook"
            warnings.warn(f"{some(moved)} was changed {since}: the training goes on from there", stacklevel=3)

    def _trained(self) -> dict[str, Tensor]:
        """The parameters that train. Others may be changed by folding adapters into them."""
        return {name: each for name, each in self._begun().module.named_parameters() if each.requires_grad}

    def _inputs(self, name: str) -> Iterator[Any] | None:
        """The batches for an average that needs some, where its module is and in its type."""
        if self.averages[name].buffers != "re-estimate" or self.batches is None:
            return None
        like = next(self._begun().module.parameters())
        batches: Any = self.batches
        if isinstance(batches, DataLoader):
            batches = copy.copy(batches)
            batches._iterator = None  # with persistent workers it is that of the training's own pass
        return (_moved(batch, like) for batch in batches)


def _moved(batch: Any, like: Tensor) -> Any:
    """A batch with its tensors on the device of `like`, numbers in its type; the rest as it is."""
    if isinstance(batch, Tensor):
        return batch.to(like.device, like.dtype if batch.is_floating_point() else batch.dtype)
    if isinstance(batch, Mapping):
        return {name: _moved(value, like) for name, value in batch.items()}
    return [_moved(value, like) for value in batch] if isinstance(batch, tuple | list) else batch
