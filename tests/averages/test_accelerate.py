"""Averages in a loop with accelerate: saved and loaded with its own state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedsash.averages import EMA, Tracker, Window
from fedsash.averages.distributed import WholeState
from support.loops import equal, make_model

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")


def made() -> tuple[Any, nn.Module, Any, Tracker]:
    accelerator = accelerate.Accelerator(cpu=True)
    model = make_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimiser = accelerator.prepare(model, optimiser)
    tracker = Tracker({"ema": EMA(0.9), "window": Window(6)}, model, trajectory_every=2)
    optimiser.optimizer.register_step_post_hook(tracker.after_step)
    return accelerator, model, optimiser, tracker


def train(accelerator: Any, model: nn.Module, optimiser: Any, tracker: Tracker, steps: range) -> None:
    for step in steps:
        draw = torch.Generator().manual_seed(step)
        optimiser.zero_grad()
        accelerator.backward(model(torch.randn(8, 4, generator=draw)).square().mean())
        optimiser.step()


@pytest.mark.parametrize("kind", [lambda tracker: tracker, WholeState])
def test_the_averages_go_on_to_the_byte_with_the_state_of_accelerate(kind: Any, tmp_path: Path) -> None:
    whole, rest = made(), made()
    for accelerator, *_, tracker in (whole, rest):
        accelerator.register_for_checkpointing(kind(tracker))
    train(*whole, range(4))
    whole[0].save_state(str(tmp_path))
    train(*whole, range(4, 9))
    rest[0].load_state(str(tmp_path))
    train(*rest, range(4, 9))
    assert equal(rest[3].state_dict(), whole[3].state_dict())
    assert equal(rest[1].state_dict(), whole[1].state_dict())
