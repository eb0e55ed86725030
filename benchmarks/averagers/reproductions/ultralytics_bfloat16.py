"""ultralytics' ModelEMA: bfloat16.

Right: the average of bfloat16 parameters follows them.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
model.bfloat16()
model.layer.weight.data.fill_(1)
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
exact = 1.0
for step in range(200):
    model.layer.weight.data.fill_(1 + (step // 10) * 2**-7)
    exact = 0.9 * exact + 0.1 * float(model.layer.weight[0, 0])
    ema.update(model)
print("the average is", float(ema.ema.layer.weight[0, 0]), f"(right: {exact:.4f}, within 0.0078)")
