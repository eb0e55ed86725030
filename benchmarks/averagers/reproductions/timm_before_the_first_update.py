"""timm's ModelEmaV3: before the first update.

Right: the average is the current model.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # timm's class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("timm", "utils/model_ema.py", "ModelEmaV3")(model, decay=0.9)
model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
distance = (ema.module.layer.weight - model.layer.weight).abs().max()
print("distance of the average from the model:", float(distance), "(right: 0.0)")
