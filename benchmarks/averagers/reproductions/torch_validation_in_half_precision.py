"""PyTorch's AveragedModel: validation in half precision.

Right: the average is not rounded for good.
"""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
ema.update_parameters(model)
before = ema.module.layer.weight.clone()
ema.module.half()  # a validation in half precision ...
ema.module.float()
change = float((ema.module.layer.weight - before).abs().max())
print("a validation has changed the average by", change, "(right: 0.0)")
