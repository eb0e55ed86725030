"""TRL's BEMACallback: before the first update.

Right: the average is the current model.
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
model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
distance = (bema.running_model.layer.weight - model.layer.weight).abs().max()
print("distance of the average from the model:", float(distance), "(right: 0.0)")
