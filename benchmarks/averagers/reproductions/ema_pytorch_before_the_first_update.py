"""ema-pytorch's EMA: before the first update.

Right: the average is the current model.
"""

from ema_pytorch import EMA
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
distance = (ema.ema_model.layer.weight - model.layer.weight).abs().max()
print("distance of the average from the model:", float(distance), "(right: 0.0)")
