"""What the callbacks of Lightning and of Hugging Face's Trainer share."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from inspect import signature
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from ...settings.errors import SettingError, check, check_choice, some
from ...vector.arrays import Vectors
from ...vector.randomness import draws_kept
from ...vector.shards import resharded
from ...vector.wrapped import shard_of, unwrapped
from ..base import Average, by_name
from ..distributed import WholeState, gathered
from ..lent import checksums, switchable, switches_kept
from ..tracker import Tracker

After = Literal["step", "epoch"]

WITHOUT_AVERAGES = "{} has no averages: they begin with the training that follows"
"""The warning for a checkpoint of a training without the callback."""


class TrackerCallback:
    """Keeps averages of the model that a trainer trains, and puts one of them into the model for evaluation.

    `averages` is one average, or several by their names. They and further arguments by name, such as
    `trajectory_every = 100`, are those of `Tracker`. They observe the model `after` each step of the optimiser or
    after each epoch. `evaluate` names the average that is evaluated in the model's place: the first one if it is None;
    with `"model"` it is the model itself. `batches` are inputs from which averages with `buffers = "re-estimate"` get
    their statistics, each time they are evaluated or saved. No random number of the training is drawn for them.

    Warnings say where the model itself is evaluated, since the average is missing or has no model yet, and name the
    parameters that somebody else has changed between an evaluation and the next batch.

    `tracker` is the `Tracker` that does the work; None before the training begins. What is saved of a sharded module
    (FSDP2) is whole: all processes gather it, and the first one writes it. Raises `SettingError`, and `TypeError` for
    an argument that `Tracker` does not know.
    """

    def __init__(
        self,
        averages: Average | Mapping[str, Average],
        *,
        after: After = "step",
        evaluate: str | None = None,
        batches: Iterable[Any] | None = None,
        **settings: Any,
    ) -> None:
        signature(Tracker).bind(averages, None, **settings)
        self.averages = by_name(averages)
        self.settings = settings
        """The further arguments of the tracker."""
        self.after = after
        self.batches = batches
        self.evaluate = next(iter(self.averages)) if evaluate is None else evaluate
        self.tracker: Tracker | None = None
        self._saved: Mapping[str, Tensor] | None = None
        """A tracker's state from a checkpoint, until the training or an evaluation begins."""
        self._applied = ExitStack()
        self._lent = False
        """Whether the module has the average in it."""
        self._switched = False
        """Whether an optimiser has an `eval` or `train`, which move the parameters."""
        self._checksums: dict[str, int] = {}
        """Those of the parameters when the last average was returned; empty after the next batch has begun."""
        self._hook: Any = None
        """PyTorch's handle of `_note_step`, to remove it."""
        check_choice("Averages.after", after, "step", "epoch")
        known = [*self.averages, "model"]
        check(self.evaluate in known, "Averages.evaluate", self.evaluate, f"must be one of {known}")
        if batches is None:
            re_estimates = any(average.buffers == "re-estimate" for average in self.averages.values())
            requirement = 'must be given: an average has buffers = "re-estimate"'
            check(not re_estimates, "Averages.batches", batches, requirement)
        else:
            iterable = hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
            again = iterable and not isinstance(batches, Iterator)
            requirement = "must be a loader or a list, which can be read again for each evaluation"
            check(again, "Averages.batches", batches, requirement)

    def averaged_state_dict(self, name: str | None = None) -> Vectors:
        """A copy of the module's state dict with an average in it: the first one, or that of the name.

        If the module is sharded, all processes must call it; the first one gets whole tensors, in the host's memory,
        and the others nothing.
        """
        tracker = self._current_tracker()
        name = name or next(iter(self.averages))
        check(name in self.averages, "Averages: average", name, f"must be one of {', '.join(self.averages)}")
        with draws_kept(self.batches):
            averaged = tracker.averaged_state_dict(name, batches=self._inputs(name))
        if shard_of(tracker.module):
            return gathered(averaged)
        return averaged

    def _current_tracker(self) -> Tracker:
        """The tracker; raises `SettingError` if there is none yet."""
        if self.tracker is None:
            requirement = (
                "there is none before the training has begun, nor where fit was called if the strategy starts processes"
            )
            raise SettingError.at("Averages.tracker", None, requirement)
        return self.tracker

    def _can_save(self) -> bool:
        """Whether there are averages to save; a warning if an error or Ctrl-C has broken off their last update."""
        if self.tracker is None:
            return False
        if self.tracker.torn:
            warnings.warn("an update of the averages was interrupted, so they are not saved", stacklevel=3)
            return False
        return True

    def _begin(self, module: nn.Module) -> None:
        """Average this module from now on; go on from what a checkpoint had, if one was loaded."""
        self._checksums = {}
        if self.tracker is None or self.tracker.module is not unwrapped(module):
            self.tracker = Tracker(self.averages, module, **self.settings)
        if self._saved is not None:
            WholeState(self.tracker).load_state_dict(self._saved)
            self._saved = None

    def _watch(self) -> None:
        """Note the steps of all optimisers from now on, also of those that the trainer does not know."""
        self._stop_watching()  # a training before may have ended with an error
        self._hook = register_optimizer_step_post_hook(self._note_step)

    def _stop_watching(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _note_step(self, optimiser: Optimizer, *_: Any) -> None:
        """Note that an optimiser has stepped."""
        raise NotImplementedError

    def _lend(self, module: nn.Module, optimisers: Iterable[object] = ()) -> None:
        """Put the average into the module until `_restore`; a warning if there is none, so that the model stays.

        What the optimisers are switched to meanwhile they are switched to afterwards.
        """
        if self.evaluate == "model":
            return
        obstacle = self._obstacle(module)
        if obstacle:
            warnings.warn(f"{obstacle}: the model itself is evaluated", stacklevel=3)
            return
        optimisers = list(optimisers)
        with ExitStack() as stack:
            stack.enter_context(switches_kept(optimisers))
            with draws_kept(self.batches):
                batches = self._inputs(self.evaluate)
                stack.enter_context(self._current_tracker().applied(self.evaluate, batches=batches))
            self._applied = stack.pop_all()
        self._lent = True
        bare = [getattr(optimiser, "optimizer", optimiser) for optimiser in optimisers]  # without its wrapper
        self._switched = any(switchable(optimiser) for optimiser in bare)

    def _obstacle(self, module: nn.Module) -> str:
        """What prevents that the average is evaluated in place of this module; empty if nothing does."""
        if self.tracker is None:
            return "there are no averages before the training, nor where fit started other processes"
        if self.tracker.module is not unwrapped(module):
            return f"the average {self.evaluate} is of another module"
        if not self.tracker.count(self.evaluate):
            return f"the average {self.evaluate} has no model yet"
        return ""

    @property
    def _evaluated_name(self) -> str:
        """The name of what is in the module now: an average's, or `"model"`."""
        return self.evaluate if self._lent else "model"

    def _restore(self) -> None:
        """Give the module its own values back, bitwise."""
        self._applied.close()
        if self._lent and not self._switched:  # such an optimiser moves the parameters once more before a batch
            self._checksums = checksums(self._trained())
        self._lent = False

    def _check_unmoved(self) -> None:
        """Before a batch: warn of parameters that somebody has moved since the average was returned."""
        if not self._checksums:
            return
        now = checksums(self._trained())
        moved = [name for name, checksum in self._checksums.items() if now.get(name, checksum) != checksum]
        self._checksums = {}
        if moved:
            since = "since the average was evaluated, by another callback or hook"
            warnings.warn(f"{some(moved)} was changed {since}: the training goes on from there", stacklevel=3)

    def _trained(self) -> dict[str, Tensor]:
        """The parameters that train. Others may be changed by folding adapters into them."""
        tensors = resharded(self._current_tracker().module)
        return {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}

    def _inputs(self, name: str) -> Iterator[Any] | None:
        """The batches for an average that needs some, where its module is and in its type."""
        if self.averages[name].buffers != "re-estimate" or self.batches is None:
            return None
        like = next(self._current_tracker().module.parameters())
        batches: Any = self.batches
        if isinstance(batches, DataLoader):
            batches = copy.copy(batches)
            batches._iterator = None  # with persistent workers it is that of the training's own pass
        return (_moved(batch, like) for batch in batches)


def _moved(batch: Any, like: Tensor) -> Any:
    """A batch with its tensors on the device of `like`, numbers in its type; the rest as it is."""
    if isinstance(batch, Tensor):
        dtype = like.dtype if batch.is_floating_point() else batch.dtype
        return batch.to(like.device, dtype)
    if isinstance(batch, Mapping):
        return {name: _moved(value, like) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_moved(value, like) for value in batch]
    return batch
