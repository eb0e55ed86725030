"""TRL's BEMACallback: validation in half precision.

Right: the average is not rounded for good.
"""

from types import SimpleNamespace

from torch import nn
from trl import BEMACallback


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config
        self.layer = nn.Linear(4, 64)


model = Model()
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
trainer.global_step += 1
bema.on_step_end(None, trainer, None, model=model)
before = bema.running_model.layer.weight.clone()
bema.running_model.half()  # a validation in half precision ...
bema.running_model.float()
change = float((bema.running_model.layer.weight - before).abs().max())
print("a validation has changed the average by", change, "(right: 0.0)")
