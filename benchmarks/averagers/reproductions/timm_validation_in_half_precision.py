"""timm's ModelEmaV3: validation in half precision.

Right: the average is not rounded for good.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # timm's class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("timm", "utils/model_ema.py", "ModelEmaV3")(model, decay=0.9)
ema.update(model)
before = ema.module.layer.weight.clone()
ema.module.half()  # a validation in half precision ...
ema.module.float()
change = float((ema.module.layer.weight - before).abs().max())
print("a validation has changed the average by", change, "(right: 0.0)")
