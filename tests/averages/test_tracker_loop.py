"""A plain loop as people write it: autocast, a gradient scaler, accumulated gradients, layers that are unfrozen."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import EMA, SWA, Average, Tracker, Window
from support.loops import equal

STEPS = 14
UNFREEZES = 6
OVERFLOWS = 9
AVERAGES: dict[str, Average] = {"ema": EMA(0.8), "window": Window(4), "swa": SWA(3)}


def make() -> nn.Sequential:
    """A model whose first layers are frozen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    freeze(model, frozen=True)
    return model


def freeze(model: nn.Sequential, frozen: bool) -> None:
    model[0].requires_grad_(not frozen)
    model[1].train(not frozen)


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(8, 6, generator=generator)
    return x, (x.sum(1) > 0).long()


def train(
    checkpoint: bytes | None = None, stop: int = STEPS, **settings: Any
) -> tuple[dict[str, Tensor], Tracker, bytes]:
    """Train up to a step, from the beginning or a checkpoint; the model, the tracker and a checkpoint."""
    model = make()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    tracker = Tracker(AVERAGES, model, trajectory_every=2, **settings)
    begin = 0
    if checkpoint is not None:
        saved = torch.load(io.BytesIO(checkpoint))
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        scaler.load_state_dict(saved["scaler"])
        tracker.load_state_dict(saved["tracker"])
        begin = saved["step"]
        freeze(model, frozen=begin <= UNFREEZES)
    for step in range(begin, stop):
        if step == UNFREEZES:
            freeze(model, frozen=False)
        for part in range(2):
            x, y = batch(2 * step + part)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y) / 2
            if step == OVERFLOWS and part == 0:
                loss = loss * torch.inf
            scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
        if scaler.get_scale() >= scale:  # else the step was skipped
            tracker.update()
        if step % 3 == 2:
            with tracker.applied("ema"), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                model(batch(999)[0])  # in train mode, as one who forgets `eval()`
    file = io.BytesIO()
    torch.save(
        {
            "model": model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "scaler": scaler.state_dict(),
            "tracker": tracker.state_dict(),
            "step": stop,
        },
        file,
    )
    return model.state_dict(), tracker, file.getvalue()


@pytest.mark.parametrize("settings", [{}, {"every": 3}, {"every": 2, "device": "cpu"}], ids=str)
def test_it_is_resumed_to_the_byte_at_any_step(settings: dict[str, Any]) -> None:
    model, tracker, _ = train(**settings)
    for stop in (UNFREEZES, UNFREEZES + 1, OVERFLOWS + 1):
        _, _, checkpoint = train(stop=stop, **settings)
        again, resumed, _ = train(checkpoint, **settings)
        assert equal(again, model)
        assert equal(resumed.state_dict(), tracker.state_dict())
        assert equal(resumed.ema(0.5), tracker.ema(0.5))


def test_a_skipped_step_is_no_update_and_evaluations_leave_training_alone() -> None:
    model, tracker, _ = train()
    assert tracker.round == STEPS - 1
    assert tracker.value("ema").keys() == dict(make().named_parameters()).keys() | {
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }
    assert int(model["1.num_batches_tracked"]) == 2 * (STEPS - UNFREEZES)
