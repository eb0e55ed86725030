"""ema-pytorch's EMA: a step that is not finite.

Right: it is left out of the average.
"""

from ema_pytorch import EMA
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
for step in range(20):
    own = model.layer.weight.detach().clone()
    if step == 5:
        model.layer.weight.data[33, 2] = float("nan")
    ema.update()
    model.layer.weight.data.copy_(own)
entries = int((~ema.ema_model.layer.weight.isfinite()).sum())
print("entries that are not finite, 14 updates later:", entries, "(right: 0)")
