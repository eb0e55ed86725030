"""PyTorch's AveragedModel: a module that grew.

Right: a new layer is averaged, or refused, not left out in silence.
"""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
ema.update_parameters(model)
model.head = nn.Linear(64, 2)
for _ in range(20):
    ema.update_parameters(model)
print("the model has", list(dict(model.named_children())))
print("and its average", list(dict(ema.module.named_children())))
