"""ema-pytorch's EMA: bfloat16.

Right: the average of bfloat16 parameters follows them.
"""

from ema_pytorch import EMA
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
model.bfloat16()
model.layer.weight.data.fill_(1)
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
exact = 1.0
for step in range(200):
    model.layer.weight.data.fill_(1 + (step // 10) * 2**-7)
    exact = 0.9 * exact + 0.1 * float(model.layer.weight[0, 0])
    ema.update()
print("the average is", float(ema.ema_model.layer.weight[0, 0]), f"(right: {exact:.4f}, within 0.0078)")
