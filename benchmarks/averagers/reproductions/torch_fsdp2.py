"""PyTorch's AveragedModel: FSDP2.

Right: a sharded module is averaged.
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Module()
model.layer = nn.Linear(4, 64)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
print("no error (right)")
