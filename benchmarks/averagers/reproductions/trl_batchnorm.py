"""TRL's BEMACallback: BatchNorm.

Right: its statistics belong to the average, or are the newest.
"""

from types import SimpleNamespace

import torch
from torch import nn
from trl import BEMACallback


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config
        self.layer = nn.BatchNorm1d(64)


model = Model()
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
for _ in range(20):
    model.layer(torch.randn(32, 64) + 5)
    trainer.global_step += 1
    bema.on_step_end(None, trainer, None, model=model)
print(f"running mean: the model has {float(model.layer.running_mean.mean()):.1f}, as its inputs")
print(f"and the average {float(bema.running_model.layer.running_mean.mean()):.1f}")
