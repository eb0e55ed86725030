"""diffusers' EMAModel: an error in validation.

Right: the model has its own values again.
"""

from diffusers.training_utils import EMAModel
from torch import nn

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = EMAModel(model.parameters(), decay=0.9, min_decay=0.9)
ema.step(model.parameters())
model.layer.weight.data.add_(1)
own = model.layer.weight.detach().clone()
try:
    ema.store(model.parameters())
    ema.copy_to(model.parameters())
    raise RuntimeError("in the validation")
except RuntimeError:  # the training scripts restore after a validation that ends
    print("the model is off by", float((model.layer.weight - own).abs().max()), "(right: 0.0)")
