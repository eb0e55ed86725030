"""diffusers' EMAModel: validation in half precision.

Right: the buffers are not rounded for good.
"""

from diffusers.training_utils import EMAModel
from torch import nn

model = nn.Module()
model.layer = nn.BatchNorm1d(64)
ema = EMAModel(model.parameters(), decay=0.9, min_decay=0.9)
model.layer.running_mean.fill_(1 / 3)
ema.store(model.parameters())
ema.copy_to(model.parameters())
model.half()  # a validation in half precision ...
model.float()
ema.restore(model.parameters())
change = float((model.layer.running_mean - 1 / 3).abs().max())
print("a validation has changed BatchNorm's mean by", change, "(right: 0.0)")
