"""Averages in Lightning: `Trainer(callbacks=[Averages(EMA(0.999))])`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from ...settings.errors import ModelError, library
from ...vector.shards import is_sharded
from ...vector.wrapped import plain
from ..distributed import WholeState
from ..tracker import skipped
from .callback import WITHOUT_AVERAGES, TrackerCallback

with library("lightning", "fedsash.averages.trainers.lightning", "fedsash[lightning]"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher


class Averages(TrackerCallback, Callback):  # type: ignore[misc]
    """Keeps averages of a LightningModule in `fit`, and validates, tests and predicts with one of them.

        trainer = Trainer(callbacks=[Averages({"window": Window(100), "ema": EMA(0.999)})])

    The arguments are those of `TrackerCallback`. After each evaluation the module is itself, bitwise; so training and
    the `state_dict` of a checkpoint are as without the callback. Beside it a checkpoint has `averages`, a state dict
    without frozen weights for each average by its name, and all that a resumed training needs to go on to the byte.
    `test(ckpt_path=...)` takes the averages of that checkpoint. A checkpoint of weights only has none, since Lightning
    asks no callback for it; a warning says so. With `after = "epoch"` the last batch's model is averaged before it is
    validated. A step of any optimiser of the module's parameters counts, at most one a batch. Each metric is there once
    more under a name that says whose it is: `loss` also as `loss_of_NAME`, or `loss_of_model`. Metrics have
    `models_in_NAME`, how many models are in the average that they are of.

    With `ModelParallelStrategy` (FSDP2) each process averages its shards; a checkpoint has whole averages, from which a
    training goes on in any number of processes. Raises `ModelError` for FSDP1 and DeepSpeed, before the training, and
    for `batches` if the module has no `forward`.
    """

    _loaded_path: Any = None
    """The last checkpoint of which Lightning has told this callback, with averages or without."""
    _stepped = False
    """Whether an optimiser has stepped since the last update."""
    _open = False
    """Whether an epoch has begun that is not averaged yet."""
    _ended = False
    """Whether this epoch has had its last batch."""
    _watched: frozenset[torch.optim.Optimizer] = frozenset()
    """The optimisers of the module's parameters that have stepped in this training."""
    _named: LightningModule | None = None
    """The module whose metrics get a second name, during an evaluation."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if isinstance(trainer.strategy, FSDPStrategy | DeepSpeedStrategy):
            kind = type(trainer.strategy).__name__
            raise ModelError(f"Averages: {kind} hides the parameters: use ModelParallelStrategy (FSDP2), or DDP")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.batches is not None and type(pl_module).forward is LightningModule.forward:
            raise ModelError("Averages.batches: they pass through forward, which this module lacks: define it")
        if any(getattr(each, "save_weights_only", False) for each in trainer.checkpoint_callbacks):
            warnings.warn("checkpoints of weights only (save_weights_only) have no averages", stacklevel=2)
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
            warnings.warn(LOST, stacklevel=2)
        self._begin(pl_module)
        self._stepped = False
        self._open = False
        self._ended = False
        self._steps = trainer.global_step
        # Of all optimisers: one that is an attribute, or that steps in a hook, is not in Lightning's count of steps.
        self._watch()

    def _note_step(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        """Note that an optimiser of the module's parameters has stepped."""
        if self._stepped or self._lent or skipped(optimiser):
            return
        if optimiser not in self._watched:
            if not self._steps_module(optimiser):
                return
            self._watched |= {optimiser}
        self._stepped = True

    def _steps_module(self, optimiser: torch.optim.Optimizer) -> bool:
        """Whether an optimiser has one of the module's parameters."""
        parameters = {id(parameter) for parameter in self._current_tracker().module.parameters()}
        for group in optimiser.param_groups:
            if any(id(parameter) in parameters for parameter in group["params"]):
                return True
        return False

    def _steps_copies(self, trainer: Trainer) -> bool:
        """Whether the trainer's optimisers have none of the module's parameters, as those that have copies of them."""
        return not any(optimiser in self._watched or self._steps_module(optimiser) for optimiser in trainer.optimizers)

    def _update(self) -> None:
        """Average the model if an optimiser has stepped, or the epoch has ended, since the last time."""
        due = self._stepped
        if self.after == "epoch":
            due = self._ended and self._open
        if due:
            self._current_tracker().update()
            self._open = False
        self._stepped = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.after == "step":  # the module itself may have stepped after this callback's `on_train_batch_end`
            self._update()
        self._check_unmoved()
        self._open = True
        self._ended = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step > self._steps and self._steps_copies(trainer):
            self._stepped = True
        self._steps = trainer.global_step
        if self.after == "step":
            self._update()
        self._ended = _epoch_ends(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ended = True
        self._update()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._update()
        self._stop_watching()

    def _stop_watching(self) -> None:
        super()._stop_watching()
        self._watched = frozenset()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._lend_for_evaluation(trainer, pl_module)
        self._name_metrics(pl_module)

    on_test_start = on_predict_start = on_validation_start

    def _lend_for_evaluation(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the average into the module, unless there is none yet, or another model is tested."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._ended = _epoch_ends(trainer)
            self._update()
        loaded = self._saved is not None
        if loaded and not trainer.training:
            self._begin(pl_module)
        if trainer.sanity_checking and self._obstacle(pl_module):
            return
        if loaded or trainer.state.fn == "fit" or trainer.ckpt_path is None:
            self._lend(pl_module, _optimisers(trainer, pl_module))
        elif self._loaded_path != trainer.ckpt_path:  # of weights only: Lightning has told no callback of it
            warnings.warn(WITHOUT_AVERAGES.format(trainer.ckpt_path), stacklevel=2)

    def _name_metrics(self, pl_module: LightningModule) -> None:
        """Let the module log each metric a second time, under a name that says whose it is, until `_stop_naming`."""
        log = pl_module.log
        arguments_of_log = signature(log)
        name = self._evaluated_name

        @wraps(log)
        def named(*arguments: Any, **keywords: Any) -> None:
            log(*arguments, **keywords)
            bound = arguments_of_log.bind(*arguments, **keywords)
            bound.arguments["name"] = f"{bound.arguments['name']}_of_{name}"
            bound.arguments["prog_bar"] = False
            log(*bound.args, **bound.kwargs)

        self._stop_naming()
        pl_module.log = named
        self._named = pl_module

    def _stop_naming(self) -> None:
        """Let the module log each metric once."""
        if self._named is not None:
            del self._named.log  # which was the class's
            self._named = None

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._lent:
            models = float(self._current_tracker().count(self.evaluate))
            LightningModule.log(pl_module, f"models_in_{self.evaluate}", models, sync_dist=True)

    on_test_epoch_end = on_validation_epoch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop_naming()
        self._restore()

    on_test_end = on_predict_end = on_validation_end

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop_watching()
        self._stop_naming()
        self._restore()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._can_save():
            return
        lent = self._lent  # it is saved in the middle of an evaluation
        if lent:
            self._restore()
            checkpoint["state_dict"] = copy.deepcopy(trainer.strategy.lightning_module_state_dict())
        model = checkpoint["state_dict"]
        checkpoint["averages"] = {name: self._saved_average(name, model) for name in self.averages}
        if lent:
            self._lend(pl_module, _optimisers(trainer, pl_module))

    def _saved_average(self, name: str, model: Mapping[str, Any]) -> dict[str, Any]:
        """The state dict of an average by the model's names, without frozen weights.

        What it has in common with the model is saved once.
        """
        tracker = self._current_tracker()
        averaged = plain(tracker.value(name))
        frozen: set[str] = set()
        for key, parameter in plain(dict(tracker.module.named_parameters(remove_duplicate=False))).items():
            if not parameter.requires_grad and key not in averaged:
                frozen.add(key)
        names = plain({key: key for key in model})  # those of a part that is compiled have `_orig_mod.` in them
        saved: dict[str, Any] = {}
        for key, value in self.averaged_state_dict(name).items():
            if key in frozen:
                continue
            key_in_model = names.get(key, key)
            saved[key_in_model] = value
            if _equal(value, model.get(key_in_model)):
                saved[key_in_model] = model[key_in_model]  # one tensor, which is saved once
        return saved

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._loaded_path = trainer.ckpt_path
        begins = self.tracker is None and checkpoint["global_step"] == 0  # as a search for a learning rate saves it
        if "averages" not in checkpoint and not begins:
            warnings.warn(WITHOUT_AVERAGES.format(trainer.ckpt_path), stacklevel=2)
            if trainer.state.fn == "fit":
                self.tracker = None

    def state_dict(self) -> dict[str, Any]:
        """The tracker's state, which a resumed training needs."""
        if not self._can_save():
            return {}
        if not self._lent:
            self._update()
        return {"tracker": WholeState(self._current_tracker()).state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint when the training, or an evaluation, begins."""
        self._saved = state_dict["tracker"]


LOST = (
    "this strategy trains in other processes: where fit was called the averages are lost afterwards, and the model "
    "itself is evaluated; a checkpoint has them"
)


def _epoch_ends(trainer: Trainer) -> bool:
    """Whether the last batch of an epoch is over, also where the training stops within it."""
    return bool(trainer.is_last_batch or trainer.fit_loop.epoch_loop.done)


def _optimisers(trainer: Trainer, pl_module: LightningModule) -> list[Any]:
    """The optimisers that code of a module can reach, as they are and as Lightning wraps them."""
    wrapped = pl_module.optimizers()
    if not isinstance(wrapped, list):
        wrapped = [wrapped]
    return [*trainer.optimizers, *wrapped]


def _equal(a: object, b: object) -> bool:
    """Whether both are whole tensors of the same type, on the same device, with the same values."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or is_sharded(b):
        return False
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
