"""PyTorch's AveragedModel: before the first update.

Right: the average is the current model.
"""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
distance = (ema.module.layer.weight - model.layer.weight).abs().max()
print("distance of the average from the model:", float(distance), "(right: 0.0)")
