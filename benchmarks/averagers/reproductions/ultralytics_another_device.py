"""ultralytics' ModelEMA: another device.

Right: the average goes on when the module has moved.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
ema.update(model)
model.double().float()  # as `.to(device)`, it gives the parameters other memory
model.layer.weight.data.add_(1)
before = ema.ema.layer.weight.clone()
for _ in range(20):
    ema.update(model)
print(f"in 20 updates the average has moved by {float((ema.ema.layer.weight - before).mean()):.3f} of 1 (right: 0.878)")
