"""TRL's BEMACallback: a module that grew.

Right: a new layer is averaged, or refused, not left out in silence.
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
model.head = nn.Linear(64, 2)
for _ in range(20):
    trainer.global_step += 1
    bema.on_step_end(None, trainer, None, model=model)
print("the model has", list(dict(model.named_children())))
print("and its average", list(dict(bema.running_model.named_children())))
