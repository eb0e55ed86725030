"""ultralytics' ModelEMA: a step that is not finite.

Right: it is left out of the average.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
for step in range(20):
    own = model.layer.weight.detach().clone()
    if step == 5:
        model.layer.weight.data[33, 2] = float("nan")
    ema.update(model)
    model.layer.weight.data.copy_(own)
entries = int((~ema.ema.layer.weight.isfinite()).sum())
print("entries that are not finite, 14 updates later:", entries, "(right: 0)")
