"""PyTorch's AveragedModel: a step that is not finite.

Right: it is left out of the average.
"""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
for step in range(20):
    own = model.layer.weight.detach().clone()
    if step == 5:
        model.layer.weight.data[33, 2] = float("nan")
    ema.update_parameters(model)
    model.layer.weight.data.copy_(own)
entries = int((~ema.module.layer.weight.isfinite()).sum())
print("entries that are not finite, 14 updates later:", entries, "(right: 0)")
