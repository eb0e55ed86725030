"""TRL's BEMACallback: resumed at any step.

Right: a resumed training has the average of one without a stop.
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
for _ in range(20):
    model.layer.weight.data.add_(0.1)
    trainer.global_step += 1
    bema.on_step_end(None, trainer, None, model=model)
average = bema.running_model.layer.weight.clone()
print("a Trainer's checkpoint has its state:", hasattr(bema, "state"))  # see ExportableState
bema = BEMACallback(update_freq=1)  # a new process, whose Trainer has loaded the model
bema.on_train_begin(None, trainer, None, model=model)
error = float((bema.running_model.layer.weight - average).abs().max())
print("the resumed average is off by", error, "(right: 0.0)")
