"""TRL's BEMACallback: a step that is not finite.

Right: it is left out of the average.
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
for step in range(20):
    own = model.layer.weight.detach().clone()
    if step == 5:
        model.layer.weight.data[33, 2] = float("nan")
    trainer.global_step += 1
    bema.on_step_end(None, trainer, None, model=model)
    model.layer.weight.data.copy_(own)
entries = int((~bema.running_model.layer.weight.isfinite()).sum())
print("entries that are not finite, 14 updates later:", entries, "(right: 0)")
