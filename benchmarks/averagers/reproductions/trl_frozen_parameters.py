"""TRL's BEMACallback: frozen parameters.

Right: the others are averaged as ever.
"""

from types import SimpleNamespace

from torch import nn
from trl import BEMACallback


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config
        self.frozen = nn.Linear(4, 8).requires_grad_(False)
        self.layer = nn.Linear(8, 2)


model = Model()
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
trainer.global_step = 5
trainer.global_step += 1
bema.on_step_end(None, trainer, None, model=model)
print("no error (right)")
