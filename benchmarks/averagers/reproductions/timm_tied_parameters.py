"""timm's ModelEmaV3: tied parameters.

Right: a weight that two layers share counts once.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # timm's class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(8, 8)
model.tied = nn.Linear(8, 8)
model.tied.weight = model.layer.weight
model.layer.weight.data.zero_()
ema = class_of_file("timm", "utils/model_ema.py", "ModelEmaV3")(model, decay=0.9)
model.layer.weight.data.fill_(1)
ema.update(model)
print(f"after one update the average is {float(ema.module.layer.weight[0, 0]):.3f} (right: 0.100)")
