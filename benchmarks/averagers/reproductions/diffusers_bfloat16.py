"""diffusers' EMAModel: bfloat16.

Right: the average of bfloat16 parameters follows them.
"""

from diffusers.training_utils import EMAModel
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
model.bfloat16()
model.layer.weight.data.fill_(1)
ema = EMAModel(model.parameters(), decay=0.9, min_decay=0.9)
exact = 1.0
for step in range(200):
    model.layer.weight.data.fill_(1 + (step // 10) * 2**-7)
    exact = 0.9 * exact + 0.1 * float(model.layer.weight[0, 0])
    ema.step(model.parameters())
print("the average is", float(ema.shadow_params[0][0, 0]), f"(right: {exact:.4f}, within 0.0078)")
