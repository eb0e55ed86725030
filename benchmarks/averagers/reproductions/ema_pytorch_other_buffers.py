"""ema-pytorch's EMA: other buffers.

Right: a mask and whole numbers are those of the module.
"""

import torch
from ema_pytorch import EMA
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
model.register_buffer("mask", torch.tensor([True, True]))
model.register_buffer("codes", torch.tensor([10]))
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
model.mask[0], model.codes[0] = False, 13
for _ in range(20):
    ema.update()
print("the module has", model.mask.tolist(), model.codes.tolist())
print("and the average", ema.ema_model.mask.tolist(), ema.ema_model.codes.tolist())
