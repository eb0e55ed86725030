"""PyTorch's AveragedModel: bfloat16.

Right: the average of bfloat16 parameters follows them.
"""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Module()
model.layer = nn.Linear(4, 64)
model.bfloat16()
model.layer.weight.data.fill_(1)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
exact = 1.0
for step in range(200):
    model.layer.weight.data.fill_(1 + (step // 10) * 2**-7)
    exact = 0.9 * exact + 0.1 * float(model.layer.weight[0, 0])
    ema.update_parameters(model)
print("the average is", float(ema.module.layer.weight[0, 0]), f"(right: {exact:.4f}, within 0.0078)")
