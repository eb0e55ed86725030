"""Lightning's WeightAveraging and EMAWeightAveraging: bfloat16.

Right: the average of bfloat16 parameters follows them.
"""

from types import SimpleNamespace

from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn

for callback in (WeightAveraging(),):
    model = LightningModule()
    model.layer = nn.Linear(4, 64)
    model.bfloat16()
    model.layer.weight.data.fill_(1)
    trainer = SimpleNamespace(global_step=0)
    callback.setup(trainer, model, "fit")
    average = callback._average_model.module
    mean = 0.0
    for step in range(200):
        model.layer.weight.data.fill_(1 + (step // 10) * 2**-7)
        mean += float(model.layer.weight[0, 0]) / 200
        trainer.global_step += 1
        callback.on_train_batch_end(trainer, model, None, None, 0)
    print("the average is", float(average.layer.weight[0, 0]), f"(right: the plain mean, {mean:.4f})")
