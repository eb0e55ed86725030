"""ultralytics' ModelEMA: other buffers.

Right: a mask and whole numbers are those of the module.
"""

import torch
from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
model.register_buffer("mask", torch.tensor([True, True]))
model.register_buffer("codes", torch.tensor([10]))
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
model.mask[0], model.codes[0] = False, 13
for _ in range(20):
    ema.update(model)
print("the module has", model.mask.tolist(), model.codes.tolist())
print("and the average", ema.ema.mask.tolist(), ema.ema.codes.tolist())
