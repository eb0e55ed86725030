"""Averages in a loop with Hugging Face's accelerate: handwritten digits, BatchNorm, saved and gone on with.

pip install fedsash accelerate scikit-learn; python examples/loops/in_accelerate.py
"""

from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedsash as fs


def training() -> tuple[Any, nn.Module, torch.optim.Optimizer, DataLoader[Any], DataLoader[Any], fs.Tracker]:
    """All that a training has, as new: accelerate saves and loads its state, the averages among it."""
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels))
    x = torch.tensor(images, dtype=torch.float32)[order] / 16
    y = torch.tensor(labels)[order]
    train = DataLoader(TensorDataset(x[:600], y[:600]), batch_size=20, shuffle=True)
    test = DataLoader(TensorDataset(x[600:], y[600:]), batch_size=400)

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimiser, train, test = accelerator.prepare(model, optimiser, train, test)
    averages = {"window": fs.Window(100, buffers="re-estimate"), "ema": fs.EMA(0.99, warmup=True)}
    tracker = fs.Tracker(averages, model)  # after prepare, which may wrap the model, or move it
    optimiser.optimizer.register_step_post_hook(tracker.after_step)
    accelerator.register_for_checkpointing(tracker)  # of a model that FSDP2 shards: WholeState(tracker)
    return accelerator, model, optimiser, train, test, tracker


def accuracy(accelerator: Accelerator, model: nn.Module, test: DataLoader[Any]) -> float:
    model.eval()
    right = []
    for x, y in test:
        with torch.no_grad():
            found = model(x).argmax(1)
        right.append(accelerator.gather_for_metrics(found == y))
    model.train()
    return float(torch.cat(right).float().mean())


def main(epochs: int = 30) -> dict[str, float]:
    """Train half of the epochs, go on in a new training from what was saved, and give the accuracies."""
    with TemporaryDirectory() as folder:
        for part in (range(epochs // 2), range(epochs // 2, epochs)):
            accelerator, model, optimiser, train, test, tracker = training()
            if part.start:
                accelerator.load_state(folder)
            for _ in part:
                for x, y in train:
                    with accelerator.accumulate(model):
                        optimiser.zero_grad()
                        accelerator.backward(nn.functional.cross_entropy(model(x), y))
                        optimiser.step()
            accelerator.save_state(folder)

    found = {"model": accuracy(accelerator, model, test)}
    with tracker.applied("window", batches=train):
        found["window"] = accuracy(accelerator, model, test)
    with tracker.applied("ema"):
        found["ema"] = accuracy(accelerator, model, test)
    return found


if __name__ == "__main__":
    for name, share in main().items():
        print(f"{name:10} {share:.2%}")
