"""ultralytics' ModelEMA: resumed at any step.

Right: a resumed training has the average of one without a stop.
"""

import copy

from torch import nn

from benchmarks.averagers.sources import class_of_file  # its class alone, to the letter

model = nn.Module()
model.layer = nn.Linear(4, 64)
ema = class_of_file("ultralytics", "utils/torch_utils.py", "ModelEMA", ("unwrap_model",))(model, decay=0.9, tau=1e-9)
for _ in range(20):
    ema.update(model)
saved = copy.deepcopy(ema.ema).half()  # engine/trainer.py, save_model
loaded = saved.float().state_dict()  # and _load_checkpoint_state
error = float((loaded["layer.weight"] - ema.ema.layer.weight).abs().max())
print("the resumed average is off by", error, "(right: 0.0)")
