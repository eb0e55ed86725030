"""Lightning's WeightAveraging and EMAWeightAveraging: validation in half precision.

Right: the average is not rounded for good.
"""

from types import SimpleNamespace

from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EMAWeightAveraging, WeightAveraging
from torch import nn

for callback in (WeightAveraging(), EMAWeightAveraging(decay=0.9)):
    model = LightningModule()
    model.layer = nn.Linear(4, 64)
    trainer = SimpleNamespace(global_step=0)
    callback.setup(trainer, model, "fit")
    average = callback._average_model.module
    trainer.global_step += 1
    callback.on_train_batch_end(trainer, model, None, None, 0)
    before = average.layer.weight.clone()
    callback.on_validation_epoch_start(trainer, model)
    model.half()  # a validation in half precision ...
    model.float()
    callback.on_validation_epoch_end(trainer, model)
    change = float((average.layer.weight - before).abs().max())
    print(type(callback).__name__, "a validation has changed the average by", change, "(right: 0.0)")
