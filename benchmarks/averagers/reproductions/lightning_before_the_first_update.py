"""Lightning's WeightAveraging and EMAWeightAveraging: before the first update.

Right: the average is the current model.
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
    model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
    distance = (average.layer.weight - model.layer.weight).abs().max()
    print(type(callback).__name__, "distance of the average from the model:", float(distance), "(right: 0.0)")
