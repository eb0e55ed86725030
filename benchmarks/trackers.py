"""A tracker's updates beside PyTorch's AveragedModel, timm's ModelEmaV3 and Lightning's WeightAveraging.

    python -m benchmarks.trackers [THREADS]

Modules of 1.2, 21 and 86 million float32 parameters: with 160 tensors, two thirds of them short as in timm's networks,
and with 8 equal ones. EMAs are given as ratios to AveragedModel's time, which has `get_ema_multi_avg_fn`. A window is
given as a ratio to copying the model, and also with its value, for which its sum is moved on, after every update. All
are updated in turn; the ratios are those of medians.
With one thread it is processor time, which other work on the machine hardly changes; with more it is the wall clock.
timm and Lightning are left out where they are not installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import fedsash as fs

DECAY = 0.999
SIZES = {1_200_000: 61, 21_000_000: 21, 86_000_000: 7}
"""How often each is updated, by the number of parameters."""


def many(size: int) -> list[int]:
    """The lengths of 160 tensors: 106 short ones, and 54 that share the rest."""
    return [256] * 106 + [(size - 256 * 106) // 54] * 54


def few(size: int) -> list[int]:
    """The lengths of 8 equal tensors."""
    return [size // 8] * 8


def module_of(lengths: list[int]) -> nn.Module:
    """A module with parameters of these lengths."""
    return nn.ParameterList([nn.Parameter(torch.randn(length)) for length in lengths])


def averaged_model(module: nn.Module) -> Callable[[], object]:
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(DECAY))  # type: ignore[no-untyped-call]
    return lambda: average.update_parameters(module)


def tracker(average: fs.extend.Average) -> Callable[[nn.Module], Callable[[], object]]:
    return lambda module: fs.Tracker(average, module).update


def timm_v3(module: nn.Module) -> Callable[[], object]:
    """timm's class from its own file: timm as a whole needs torchvision, the file only PyTorch."""
    package = find_spec("timm")
    if package is None or package.origin is None:
        raise ImportError("timm")
    spec = spec_from_file_location("model_ema", Path(package.origin).parent / "utils" / "model_ema.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(found := module_from_spec(spec))
    average = found.ModelEmaV3(module, decay=DECAY)
    return lambda: average.update(module)


def lightning(module: nn.Module) -> Callable[[], object]:
    """Lightning's callback, called as its Trainer calls it after a step."""
    from lightning.pytorch import LightningModule
    from lightning.pytorch.callbacks import EMAWeightAveraging

    class Holder(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

    holder = Holder()
    callback = EMAWeightAveraging(decay=DECAY)
    trainer: Any = SimpleNamespace(global_step=0)
    callback.setup(trainer, holder, "fit")

    def update() -> None:
        trainer.global_step += 1
        callback.on_train_batch_end(trainer, holder, None, None, 0)

    return update


def asked(module: nn.Module) -> Callable[[], object]:
    tracker = fs.Tracker(fs.Window(3), module)

    def update() -> None:
        tracker.update()
        tracker.value()

    return update


def copying(module: nn.Module) -> Callable[[], object]:
    source = torch.zeros(sum(p.numel() for p in module.parameters()))
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


EMAS: dict[str, Callable[[nn.Module], Callable[[], object]]] = {
    "AveragedModel": averaged_model,
    "Tracker(EMA)": tracker(fs.EMA(DECAY)),
    "timm ModelEmaV3": timm_v3,
    "Lightning": lightning,
    "Tracker(EMA, double)": tracker(fs.EMA(DECAY, precision="double")),
}
WINDOWS = {"copy": copying, "Tracker(Window(3))": tracker(fs.Window(3)), "and its value": asked}


def measured(
    ways: dict[str, Callable[[nn.Module], Callable[[], object]]], module: nn.Module, repeats: int
) -> dict[str, float]:
    """The median seconds of an update in each way; a way whose library is missing is left out."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    updates: dict[str, Callable[[], object]] = {}
    for name, way in ways.items():
        try:
            updates[name] = way(module)
        except ImportError:
            continue
    times: dict[str, list[float]] = {name: [] for name in updates}
    for _ in range(4 + repeats):
        for name, update in updates.items():
            began = clock()
            update()
            times[name].append(clock() - began)
    return {name: float(np.median(of[4:])) for name, of in times.items()}


def main(threads: int) -> None:
    torch.set_num_threads(threads)
    print(f"{threads} thread{'s' * (threads > 1)}: ms an update, ratio to the first of each block")
    for size, repeats in SIZES.items():
        for lengths in (many(size), few(size)):
            module = module_of(lengths)
            print(f"{size / 1e6:g} M parameters in {len(lengths)} tensors")
            for ways in (EMAS, WINDOWS):
                found = measured(ways, module, repeats)
                first = next(iter(found.values()))
                for name, seconds in found.items():
                    print(f"    {name:22} {seconds * 1e3:9.2f} {seconds / first:6.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
