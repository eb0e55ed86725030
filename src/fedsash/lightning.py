"""Averages in Lightning: `Trainer(callbacks=[Averages(EMA(0.999))])`."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from .averages.callback import WITHOUT_AVERAGES, TrackerCallback
from .basics.errors import ModelError, library

with library("lightning", "fedsash.lightning", "fedsash[lightning]"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy


class Averages(TrackerCallback, Callback):  # type: ignore[misc]
    """Keeps averages of a LightningModule in `fit`, and validates, tests and predicts with one of them.

        trainer = Trainer(callbacks=[Averages({"window": Window(100), "ema": EMA(0.999)})])

    The arguments are those of `TrackerCallback`. After each evaluation the module is itself, bitwise; so training and
    the `state_dict` of a checkpoint are as without the callback. Beside it a checkpoint has `averages`, a state dict
    for each average by its name, and all that a resumed training needs to go on to the byte. `test(ckpt_path=...)`
    takes the averages of that checkpoint. A checkpoint of weights only has none, since Lightning asks no callback for
    it; a warning says so. With `after = "epoch"` the last batch's model is averaged before it is validated.

    Raises `ModelError` if the strategy shards the model, and for `batches` if the module has no `forward`.
    """

    _asked: Any = None
    """The last checkpoint that was asked for averages."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if isinstance(trainer.strategy, FSDPStrategy | DeepSpeedStrategy | ModelParallelStrategy):
            kind = type(trainer.strategy).__name__
            raise ModelError(f"Averages: {kind} shards the model, and a checkpoint would have one shard; use DDP")
        if self.batches is not None and type(pl_module).forward is LightningModule.forward:
            raise ModelError("Averages.batches: they pass through forward, which this module lacks: define it")
        if any(getattr(each, "save_weights_only", False) for each in trainer.checkpoint_callbacks):
            warnings.warn("checkpoints of weights only (save_weights_only) have no averages", stacklevel=2)
        self._begin(pl_module)
        self._steps = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        stepped, self._steps = trainer.global_step > self._steps, trainer.global_step
        if trainer.is_last_batch if self.after == "epoch" else stepped:
            self._begun().update()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loaded = self._saved is not None
        if loaded and not trainer.training:
            self._begin(pl_module)
        if loaded or trainer.state.fn == "fit" or trainer.ckpt_path is None:
            self._lend(pl_module)
        elif self._asked != trainer.ckpt_path:  # of weights only: Lightning has told no callback of it
            warnings.warn(WITHOUT_AVERAGES.format(trainer.ckpt_path), stacklevel=2)

    on_test_start = on_predict_start = on_validation_start

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()

    on_test_end = on_predict_end = on_validation_end

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._whole():
            return
        if lent := self._lent:  # it is saved in the middle of an evaluation
            self._restore()
            checkpoint["state_dict"] = copy.deepcopy(trainer.strategy.lightning_module_state_dict())
        checkpoint["averages"] = {name: self.averaged_state_dict(name) for name in self.averages}
        if lent:
            self._lend(pl_module)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._asked = trainer.ckpt_path
        begins = self.tracker is None and checkpoint["global_step"] == 0  # as a search for a learning rate saves it
        if "averages" not in checkpoint and not begins:
            warnings.warn(WITHOUT_AVERAGES.format(trainer.ckpt_path), stacklevel=2)
            if trainer.state.fn == "fit":
                self.tracker = None

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs."""
        return {"tracker": self._begun().state_dict()} if self._whole() else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint when the training, or an evaluation, begins."""
        self._saved = state_dict["tracker"]
