"""ultralytics' ModelEMA: before the first update.

Right: the average is the current model.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
model.layer.weight.data.add_(1)  # as when a checkpoint is loaded
distance = (ema.ema.layer.weight - model.layer.weight).abs().max()
print("distance of the average from the model:", float(distance), "(right: 0.0)")
