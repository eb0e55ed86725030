"""ultralytics' ModelEMA: validation in half precision.

Right: the average is not rounded for good.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
ema.update(model)
before = ema.ema.layer.weight.clone()
ema.ema.half()  # a validation in half precision ...
ema.ema.float()
change = float((ema.ema.layer.weight - before).abs().max())
print("a validation has changed the average by", change, "(right: 0.0)")
