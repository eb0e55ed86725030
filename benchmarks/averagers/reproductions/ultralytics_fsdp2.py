"""ultralytics' ModelEMA: FSDP2.

Right: a sharded module is averaged.
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
print("no error (right)")
