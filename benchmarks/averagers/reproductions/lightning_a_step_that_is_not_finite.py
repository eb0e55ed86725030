"""Lightning's WeightAveraging and EMAWeightAveraging: a step that is not finite.

Right: it is left out of the average.
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
    for step in range(20):
        own = model.layer.weight.detach().clone()
        if step == 5:
            model.layer.weight.data[33, 2] = float("nan")
        trainer.global_step += 1
        callback.on_train_batch_end(trainer, model, None, None, 0)
        model.layer.weight.data.copy_(own)
    entries = int((~average.layer.weight.isfinite()).sum())
    print(type(callback).__name__, "entries that are not finite, 14 updates later:", entries, "(right: 0)")
