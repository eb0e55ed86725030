"""The averagers, driven as their documentation shows: EMAs with a decay of 0.9, `WeightAveraging` a plain mean.

`promises` names what the documentation says, or what its words include: it errs on the side of the library, so that a
property which only its code seems to intend is not promised. Who calls `update` himself is told by no library what to
do after a step that a scaler has skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import fedsash as fs
from fedsash.testing import TrackingAdapter

from .sources import class_of_file

DECAY = 0.9
OF_A_COPY = {"validation in mid-training", "an error in validation", "deepcopy", "after training"}
"""What an average that is a module of its own promises by being one."""


class OfAveragedModel(TrackingAdapter):
    """PyTorch's `AveragedModel` as an EMA of the parameters, with the latest buffers, as it is by default."""

    promises = OF_A_COPY | {"resumed at any step", "BatchNorm"}

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        self.average: Any = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(DECAY))

    def update(self) -> None:
        self.average.update_parameters(self.module)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        yield self.average.module

    def state_dict(self) -> Mapping[str, Any]:
        state: dict[str, Any] = self.average.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.average.load_state_dict(state)

    def final_model(self) -> nn.Module:
        module: nn.Module = self.average.module
        return module


class OfTimm(OfAveragedModel):
    """timm's `ModelEmaV3`; its class alone, as timm as a whole needs torchvision."""

    promises = OF_A_COPY | {"resumed at any step", "bfloat16", "BatchNorm", "other buffers"}

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        TrackingAdapter.__init__(self, module, optimiser)
        self.average = class_of_file("timm", "utils/model_ema.py", "ModelEmaV3")(module, decay=DECAY)

    def update(self) -> None:
        self.average.update(self.module)


class OfEmaPytorch(OfAveragedModel):
    """ema-pytorch's `EMA`, which hooks the optimiser."""

    promises = OF_A_COPY | {"resumed at any step", "a step that a scaler skips", "accumulated gradients"}

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        from ema_pytorch import EMA

        TrackingAdapter.__init__(self, module, optimiser)
        settings = {"beta": DECAY, "min_value": DECAY, "update_after_step": 0, "update_every": 1}
        self.average = EMA(module, include_online_model=False, **settings)
        self.average.add_to_optimizer_post_step_hook(optimiser)

    def update(self) -> None:
        pass

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        yield self.average.ema_model

    def final_model(self) -> nn.Module:
        module: nn.Module = self.average.ema_model
        return module


class OfUltralytics(TrackingAdapter):
    """ultralytics' `ModelEMA`; its state as its trainer saves it, in half precision."""

    promises = OF_A_COPY | {"BatchNorm", "other buffers", "compiled", "DDP"}

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        model_ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))
        self.average = model_ema(module, decay=DECAY, tau=1e-9)

    def update(self) -> None:
        self.average.update(self.module)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        yield self.average.ema

    def state_dict(self) -> Mapping[str, Any]:
        saved = copy.deepcopy(self.average.ema).half()  # engine/trainer.py: save_model
        return {"ema": saved.state_dict(), "updates": self.average.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.average.ema.load_state_dict(state["ema"])  # engine/trainer.py: _load_checkpoint_state
        self.average.updates = state["updates"]

    def final_model(self) -> nn.Module:
        module: nn.Module = self.average.ema
        return module


class OfDiffusers(TrackingAdapter):
    """diffusers' `EMAModel`: stored, copied and restored as its training scripts do."""

    promises = ("validation in mid-training", "resumed at any step", "frozen parameters", "after training")

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        from diffusers.training_utils import EMAModel

        super().__init__(module, optimiser)
        self.average = EMAModel(module.parameters(), decay=DECAY, min_decay=DECAY)

    def update(self) -> None:
        self.average.step(self.module.parameters())

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        self.average.store(self.module.parameters())
        self.average.copy_to(self.module.parameters())
        yield self.module
        self.average.restore(self.module.parameters())

    def state_dict(self) -> Mapping[str, Any]:
        state: dict[str, Any] = self.average.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.average.load_state_dict(dict(state))

    def final_model(self) -> nn.Module:
        self.average.copy_to(self.module.parameters())
        return self.module


class OfLightning(TrackingAdapter):
    """Lightning's `WeightAveraging`, called as its Trainer calls it; its state is the Trainer's checkpoint."""

    promises = (
        "validation in mid-training",
        "resumed at any step",
        "accumulated gradients",
        "BatchNorm",
        "after training",
    )

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        from lightning.pytorch import LightningModule

        super().__init__(module, optimiser)
        self.holder = LightningModule()
        self.holder.inner = module
        self.trainer: Any = SimpleNamespace(global_step=0)
        optimiser.register_step_post_hook(self._count)
        self.callback: Any = self.new_callback()
        self.callback.setup(self.trainer, self.holder, "fit")

    def new_callback(self) -> object:
        """The callback."""
        from lightning.pytorch.callbacks import WeightAveraging

        return WeightAveraging()

    def _count(self, *_: object) -> None:
        self.trainer.global_step += 1

    def update(self) -> None:
        self.callback.on_train_batch_end(self.trainer, self.holder, None, None, 0)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        self.callback.on_validation_epoch_start(self.trainer, self.holder)
        yield self.module
        self.callback.on_validation_epoch_end(self.trainer, self.holder)

    def state_dict(self) -> Mapping[str, Any]:
        checkpoint: dict[str, Any] = {"state_dict": self.holder.state_dict(), "step": self.trainer.global_step}
        self.callback.on_save_checkpoint(self.trainer, self.holder, checkpoint)
        return checkpoint | {"callback": self.callback.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trainer.global_step = state["step"]
        self.holder.load_state_dict(state["state_dict"])
        self.callback.on_load_checkpoint(self.trainer, self.holder, dict(state))
        self.callback.load_state_dict(state["callback"])

    def final_model(self) -> nn.Module:
        self.callback.on_train_end(self.trainer, self.holder)
        return self.module


class OfLightningsEMA(OfLightning):
    """Lightning's `EMAWeightAveraging`."""

    def new_callback(self) -> object:
        from lightning.pytorch.callbacks import EMAWeightAveraging

        return EMAWeightAveraging(decay=DECAY)


class OfTRL(TrackingAdapter):
    """TRL's `BEMACallback` as an EMA, without its correction; called as Transformers' Trainer calls it."""

    promises = OF_A_COPY | {"accumulated gradients", "DDP"}

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        self.trainer: Any = SimpleNamespace(global_step=0)
        optimiser.register_step_post_hook(self._step_end)
        self._begin()

    def _begin(self) -> None:
        from trl import BEMACallback

        settings = {"ema_power": 1.0, "lag": 10, "multiplier": 0.0, "bias_power": 300.0}  # beta = 0.1, alpha = 1e-300
        self.callback: Any = BEMACallback(update_freq=1, update_after=-1, **settings)
        self.callback.on_train_begin(None, self.trainer, None, model=self.module)

    def _step_end(self, *_: object) -> None:
        self.trainer.global_step += 1
        self.callback.on_step_end(None, self.trainer, None, model=self.module)

    def update(self) -> None:
        pass

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        yield self.callback.running_model

    def state_dict(self) -> Mapping[str, Any]:
        return {"global_step": self.trainer.global_step}  # the Trainer saves no state of this callback

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trainer.global_step = state["global_step"]
        self._begin()

    def final_model(self) -> nn.Module:
        module: nn.Module = self.callback.running_model
        return module


class OfTracker(TrackingAdapter):
    """This library's `Tracker`, called by a hook of the optimiser, as its page shows."""

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        self.tracker = fs.Tracker(fs.EMA(DECAY), module)
        optimiser.register_step_post_hook(self.tracker.after_step)

    def update(self) -> None:
        pass

    def applied(self) -> Any:
        return self.tracker.applied()

    def state_dict(self) -> Mapping[str, Any]:
        return self.tracker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tracker.load_state_dict(state)

    def final_model(self) -> nn.Module:
        return self.tracker.averaged_module()


ADAPTERS: dict[str, type[TrackingAdapter]] = {
    "torch AveragedModel": OfAveragedModel,
    "timm ModelEmaV3": OfTimm,
    "ema-pytorch EMA": OfEmaPytorch,
    "Lightning WeightAveraging": OfLightning,
    "Lightning EMAWeightAveraging": OfLightningsEMA,
    "TRL BEMACallback": OfTRL,
    "diffusers EMAModel": OfDiffusers,
    "ultralytics ModelEMA": OfUltralytics,
    "fs.Tracker": OfTracker,
}
"""By the name of the library and the class."""
