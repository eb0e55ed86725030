"""Lightning's WeightAveraging and EMAWeightAveraging: other buffers.

Right: a mask and whole numbers are those of the module.
"""

from types import SimpleNamespace

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EMAWeightAveraging, WeightAveraging
from torch import nn

for callback in (EMAWeightAveraging(decay=0.9), WeightAveraging()):
    model = LightningModule()
    model.layer = nn.Linear(4, 64)
    model.register_buffer("mask", torch.tensor([True, True]))
    model.register_buffer("codes", torch.tensor([10]))
    trainer = SimpleNamespace(global_step=0)
    callback.setup(trainer, model, "fit")
    average = callback._average_model.module
    trainer.global_step += 1
    callback.on_train_batch_end(trainer, model, None, None, 0)
    model.mask[0], model.codes[0] = False, 13
    for _ in range(20):  # WeightAveraging raises
        trainer.global_step += 1
        callback.on_train_batch_end(trainer, model, None, None, 0)
    print("the module has", model.mask.tolist(), model.codes.tolist())
    print("and the average", average.mask.tolist(), average.codes.tolist())
