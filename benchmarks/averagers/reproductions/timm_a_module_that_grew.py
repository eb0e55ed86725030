"""timm's ModelEmaV3: a module that grew.

Right: a new layer is averaged, or refused, not left out in silence.
"""

from torch import nn

from benchmarks.averagers.sources import class_of_file  # timm's class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("timm", "utils/model_ema.py", "ModelEmaV3")(model, decay=0.9)
ema.update(model)
model.head = nn.Linear(64, 2)
for _ in range(20):
    ema.update(model)
print("the model has", list(dict(model.named_children())))
print("and its average", list(dict(ema.module.named_children())))
