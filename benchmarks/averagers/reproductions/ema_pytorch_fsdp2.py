"""ema-pytorch's EMA: FSDP2.

Right: a sharded module is averaged.
"""

import torch
from ema_pytorch import EMA
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Module()
model.layer = nn.Linear(4, 64)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
ema = EMA(model, beta=0.9, min_value=0.9, update_after_step=0, update_every=1)
print("no error (right)")
