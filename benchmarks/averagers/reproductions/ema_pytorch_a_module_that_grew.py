"""ema-pytorch's EMA: a module that grew.

Right: a new layer is averaged, or refused, not left out in silence.
"""

from ema_pytorch import EMA
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
ema.update()
model.head = nn.Linear(64, 2)
for _ in range(20):
    ema.update()
print("the model has", list(dict(model.named_children())))
print("and its average", list(dict(ema.ema_model.named_children())))
