"""ema-pytorch's EMA: validation in half precision.

Right: the average is not rounded for good.
"""

from ema_pytorch import EMA
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
ema.update()
before = ema.ema_model.layer.weight.clone()
ema.ema_model.half()  # a validation in half precision ...
ema.ema_model.float()
change = float((ema.ema_model.layer.weight - before).abs().max())
print("a validation has changed the average by", change, "(right: 0.0)")
