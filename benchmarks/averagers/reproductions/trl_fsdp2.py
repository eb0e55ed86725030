"""TRL's BEMACallback: FSDP2.

Right: a sharded module is averaged.
"""

from types import SimpleNamespace

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from trl import BEMACallback


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config
        self.layer = nn.Linear(4, 64)


model = Model()
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
bema = BEMACallback(update_freq=1, lag=10, ema_power=1.0, multiplier=0.0, bias_power=300.0)
trainer = SimpleNamespace(global_step=0)
bema.on_train_begin(None, trainer, None, model=model)
print("no error (right)")
