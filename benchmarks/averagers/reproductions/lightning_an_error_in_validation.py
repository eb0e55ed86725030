"""Lightning's WeightAveraging and EMAWeightAveraging: an error in validation.

Right: the model has its own values again.
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
    model.layer.weight.data.add_(1)
    own = model.layer.weight.detach().clone()
    callback.on_validation_epoch_start(trainer, model)
    callback.on_exception(trainer, model, KeyboardInterrupt())  # all that a Trainer calls then
    print(type(callback).__name__, "the model is off by", float((model.layer.weight - own).abs().max()), "(right: 0.0)")
