"""Averages in Hugging Face's Trainer: `Averages(trainer, EMA(0.999))`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

from ...settings.errors import ModelError, RunError, check, library, one_line
from ...system.paths import replaced
from ...vector.arrays import Vectors
from ...vector.shards import is_first_process
from ...vector.wrapped import plain, shard_of, unwrapped
from ..base import Average
from ..distributed import WholeState
from ..tracker import skipped
from .callback import WITHOUT_AVERAGES, After, TrackerCallback

with library("transformers", "fedsash.averages.trainers.transformers", "fedsash[transformers]"):
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint, has_length

FOLDER = "averages"
TRACKER = "tracker.safetensors"


class Averages(TrackerCallback, TrainerCallback):  # type: ignore[misc]
    """Keeps averages of the model of a `Trainer`, and evaluates and predicts with one of them.

        averages = Averages(trainer, {"window": Window(100), "ema": EMA(0.999)})
        trainer.train()

    The other arguments are those of `TrackerCallback`. It adds itself to the trainer's callbacks; to add it again has
    no effect. A trainer tells its callbacks of an evaluation when it is over, and of a checkpoint not where it lies: so
    this one also wraps the trainer's `evaluation_loop` and `train`, and an `evaluate` or `predict` of one's own. After
    each evaluation the model is itself, bitwise. Each metric is there once more under a name that says whose it is:
    `eval_loss` also as `eval_loss_of_NAME`, or `eval_loss_of_model`. The metrics of an average have
    `eval_models_in_NAME`, how many models are in it.

    A checkpoint gets a folder `averages`. `averages/NAME` has an average as a model, for `from_pretrained`. Its
    `tracker.safetensors` is what a resumed training needs to go on to the byte. With `load_best_model_at_end` the
    averages, too, are those of the best checkpoint afterwards. An epoch ends with its last step, before an evaluation.
    A step that the optimiser has skipped, since 16-bit gradients were too large, gives no model to average.

    With FSDP2 each process averages its shards; a checkpoint has whole averages, from which a training goes on in any
    number of processes, and all of them must be able to read it.

    Raises `ModelError` for FSDP1 and DeepSpeed, or if the model has SyncBatchNorm beside `batches` in several
    processes, `SettingError` for a wrong argument, and `RunError` if the trainer has averages already, or when a
    training is resumed from a damaged checkpoint.
    """

    def __init__(
        self,
        trainer: Trainer,
        averages: Average | Mapping[str, Average],
        *,
        after: After = "step",
        evaluate: str | None = None,
        batches: Iterable[Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(averages, after=after, evaluate=evaluate, batches=batches, **settings)
        self._open = False
        """Whether an epoch has begun that is not averaged yet."""
        check(isinstance(trainer, Trainer), "Averages.trainer", trainer, "must be a Trainer, which has the model")
        if trainer.is_deepspeed_enabled:
            raise ModelError("Averages: DeepSpeed hides the parameters: use FSDP2 (fsdp_config={'version': 2})")
        if trainer.is_fsdp_enabled and trainer.accelerator.state.fsdp_plugin.fsdp_version != 2:
            raise ModelError(
                "Averages: FSDP1 keeps whole tensors after an evaluation: use FSDP2 (fsdp_config={'version': 2})"
            )
        for name in ("fp16_full_eval", "bf16_full_eval"):
            check(not getattr(trainer.args, name), name, True, "can't be used with Averages: it changes the model")
        if any(isinstance(each, Averages) for each in trainer.callback_handler.callbacks):
            raise RunError("Averages: this trainer has averages already: give all of them to one Averages")
        self._resumed: str | bool | None = None
        """The folder of the checkpoint from which the training goes on; True: that of the last one."""
        # In a search for hyperparameters each trial has a folder of its own, which the trainer alone knows.
        folder_of_trial: Any = trainer._get_output_dir
        self._output: Callable[[], str] = lambda: str(folder_of_trial(getattr(trainer, "_trial", None)))
        self._left_out: Callable[[], bool] = lambda: bool(trainer.accelerator.optimizer_step_was_skipped)
        """Whether the trainer's optimiser was not asked to step, since gradients overflow."""
        self._skipped = False
        """Whether the last step of an optimiser was skipped within it, of which accelerate knows nothing."""
        self._wrap(trainer)
        trainer.add_callback(self)

    def _wrap(self, trainer: Trainer) -> None:
        """Let the trainer's methods tell of a training and of an evaluation before they begin."""
        trainer.train = self._noting_checkpoint(trainer, trainer.train)
        trainer.evaluation_loop = self._counting_models(trainer, trainer.evaluation_loop)
        for name in ("evaluate", "predict"):
            method = getattr(trainer, name)
            module = getattr(method, "__module__", None) or ""
            if not module.startswith("transformers."):  # one's own need not pass through `evaluation_loop`
                setattr(trainer, name, self._with_average(trainer, method))

    def _noting_checkpoint(self, trainer: Trainer, train: Callable[..., Any]) -> Callable[..., Any]:
        """The trainer's `train`, which notes from which checkpoint it goes on."""

        @wraps(train)
        def noting(resume_from_checkpoint: str | bool | None = None, *arguments: Any, **keywords: Any) -> Any:
            self._resumed = resume_from_checkpoint
            callbacks = trainer.callback_handler.callbacks
            while callbacks.count(self) > 1:  # add_callback(averages), by habit
                callbacks.remove(self)
            return train(resume_from_checkpoint, *arguments, **keywords)

        return noting

    def _counting_models(self, trainer: Trainer, evaluation_loop: Callable[..., Any]) -> Callable[..., Any]:
        """The trainer's `evaluation_loop` with the average in the model; its metrics say whose they are."""

        @wraps(evaluation_loop)
        def counting(*arguments: Any, **keywords: Any) -> Any:
            with self._evaluated(trainer):
                output = evaluation_loop(*arguments, **keywords)
                if output.metrics is None:
                    return output
                bound = signature(evaluation_loop).bind(*arguments, **keywords)
                bound.apply_defaults()
                prefix = bound.arguments.get("metric_key_prefix", "eval")
                for key in set(output.metrics) - {f"{prefix}_model_preparation_time"}:
                    output.metrics[f"{key}_of_{self._evaluated_name}"] = output.metrics[key]
                if self._lent:
                    count = self._current_tracker().count(self.evaluate)
                    output.metrics[f"{prefix}_models_in_{self.evaluate}"] = count
                return output

        return counting

    def _with_average(self, trainer: Trainer, method: Callable[..., Any]) -> Callable[..., Any]:
        """The trainer's method with the average in the model."""

        @wraps(method)
        def averaged(*arguments: Any, **keywords: Any) -> Any:
            with self._evaluated(trainer):
                return method(*arguments, **keywords)

        return averaged

    @contextmanager
    def _evaluated(self, trainer: Trainer) -> Iterator[None]:
        """The trainer's model with the average in it, unless it has it already."""
        if self._lent:
            yield
            return
        # A schedule-free optimiser moves the model for an evaluation: its own values, and not those of the average.
        switch = getattr(trainer.optimizer, "eval", None)
        if callable(switch):
            switch()
        self._lend(trainer.model, [trainer.optimizer, getattr(trainer.optimizer, "optimizer", None)])
        try:
            yield
        finally:
            self._restore()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **more: Any
    ) -> None:
        requirement = 'needs a training set with a length, else nobody knows which step is an epoch\'s last; use "step"'
        countable = self.after == "step" or has_length(more["train_dataloader"])
        check(countable, "Averages.after", self.after, requirement)
        synchronised = any(isinstance(layer, nn.SyncBatchNorm) for layer in model.modules())
        if synchronised and self.batches is not None and args.world_size > 1:
            raise ModelError("Averages: one process alone saves, and SyncBatchNorm waits for all: leave out batches")
        self.tracker = None
        self._open = False
        folder = self._resumed
        if folder is True:
            folder = get_last_checkpoint(args.output_dir)
        if folder:
            self._load(Path(folder))
        self._begin(model)
        self._skipped = False
        self._watch()

    def _note_step(self, optimiser: Optimizer, *_: Any) -> None:
        self._skipped = skipped(optimiser)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        epoch_ends = float(state.epoch).is_integer()
        due = epoch_ends
        if self.after == "step":
            due = not self._left_out() and not self._skipped
        if due:
            self._current_tracker().update()
        self._open = not epoch_ends

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._check_unmoved()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        if self._open and self.after == "epoch":  # it ends before its last step
            self._current_tracker().update()
        self._open = False

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **_: Any
    ) -> None:
        if not self._can_save():
            return
        tracker = self._current_tracker()
        first = is_first_process()
        if not first and not shard_of(tracker.module):
            return
        folder = Path(self._output(), f"checkpoint-{state.global_step}", FOLDER)
        saved = WholeState(tracker).state_dict()
        if first:
            with replaced(folder / TRACKER) as whole:  # first of all: without it a resumed training begins them anew
                save_file(saved, whole)
        for name in self.averages:
            averaged = self.averaged_state_dict(name)
            if first:
                self._save(model, averaged, folder / name)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **_: Any
    ) -> None:
        self._stop_watching()
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._load(Path(state.best_model_checkpoint))
            self._begin(model)

    def _save(self, model: Any, averaged: Vectors, folder: Path) -> None:
        """Save an average as a model of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(model, "save_pretrained"):
            # The model's own names for its tensors, by their plain ones: PEFT finds adapters by them.
            names = plain({name: name for name in unwrapped(model).state_dict()})
            model.save_pretrained(folder, state_dict={names[name]: value for name, value in averaged.items()})
        else:
            save_file(averaged, folder / "model.safetensors", metadata={"format": "pt"})

    def _load(self, checkpoint: Path) -> None:
        """Take up the averages of a checkpoint when the training begins or ends."""
        path = checkpoint / FOLDER / TRACKER
        if not path.is_file():
            warnings.warn(WITHOUT_AVERAGES.format(checkpoint), stacklevel=2)
            return
        try:
            self._saved = load_file(path)
        except SafetensorError as error:
            raise RunError(f"{path} can't be read: {one_line(error)}") from error
