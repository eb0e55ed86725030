"""TRL's BEMACallback: other buffers.

Right: a mask and whole numbers are those of the module.
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
        self.register_buffer("mask", torch.tensor([True, True]))
        self.register_buffer("codes", torch.tensor([10]))


model = Model()
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
model.mask[0], model.codes[0] = False, 13
for _ in range(20):
    trainer.global_step += 1
    bema.on_step_end(None, trainer, None, model=model)
print("the module has", model.mask.tolist(), model.codes.tolist())
print("and the average", bema.running_model.mask.tolist(), bema.running_model.codes.tolist())
