"""diffusers' EMAModel: a step that is not finite.

Right: it is left out of the average.
"""

from diffusers.training_utils import EMAModel
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMAModel(model.parameters(), decay=0.9, min_decay=0.9)
for step in range(20):
    own = model.layer.weight.detach().clone()
    if step == 5:
        model.layer.weight.data[33, 2] = float("nan")
    ema.step(model.parameters())
    model.layer.weight.data.copy_(own)
entries = int((~ema.shadow_params[0].isfinite()).sum())
print("entries that are not finite, 14 updates later:", entries, "(right: 0)")
