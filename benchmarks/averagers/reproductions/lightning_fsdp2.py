"""Lightning's WeightAveraging and EMAWeightAveraging: FSDP2.

Right: a sharded module is averaged.
"""

from types import SimpleNamespace

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn
from torch.distributed.fsdp import fully_shard

model = LightningModule()
model.layer = nn.Linear(4, 64)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
callback = WeightAveraging()
trainer = SimpleNamespace(global_step=0)
callback.setup(trainer, model, "fit")
print("no error (right)")
