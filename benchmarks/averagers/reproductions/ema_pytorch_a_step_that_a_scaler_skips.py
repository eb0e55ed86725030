"""ema-pytorch's EMA: a step that a scaler skips.

Right: a step that the scaler skips is no update, also if the optimiser is fused and skips it itself.
"""

import torch
from ema_pytorch import EMA
from torch import nn

for fused in (False, True):
    model = nn.Linear(4, 2)
    optimiser = torch.optim.AdamW(model.parameters(), fused=fused)
    ema = EMA(model, update_after_step=0, update_every=1)
    ema.add_to_optimizer_post_step_hook(optimiser)
    scaler = torch.amp.GradScaler("cpu")
    for factor in (1.0, torch.inf, 1.0):
        optimiser.zero_grad()
        scaler.scale(model(torch.ones(1, 4)).sum() * factor).backward()
        scaler.step(optimiser)
        scaler.update()
    print(f"fused {fused}: two steps were made, and the average has taken {int(ema.step)}")
