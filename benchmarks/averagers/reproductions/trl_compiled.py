"""TRL's BEMACallback: compiled.

Right: a compiled model is averaged as the plain one.
"""

from types import SimpleNamespace

import torch
from torch import nn
from trl import BEMACallback


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config
        self.layer = nn.Linear(4, 64)


model = torch.compile(Model())
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
print("no error (right)")
