"""TRL's BEMACallback: parameters unfrozen later.

Right: they are averaged from then on.
"""

from types import SimpleNamespace

from torch import nn
from trl import BEMACallback


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config
        self.layer = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)


model = Model()
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
model.requires_grad_(True)
model.frozen.weight.data.add_(1)
for _ in range(20):
    trainer.global_step += 1
    bema.on_step_end(None, trainer, None, model=model)
print("no error (right)")
