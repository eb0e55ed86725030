"""diffusers' EMAModel: before the first update.

Right: the average is the current model.
"""

from diffusers.training_utils import EMAModel
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMAModel(model.parameters(), decay=0.9, min_decay=0.9)
model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
distance = (ema.shadow_params[0] - model.layer.weight).abs().max()
print("distance of the average from the model:", float(distance), "(right: 0.0)")
