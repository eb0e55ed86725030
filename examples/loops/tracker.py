"""Averages in a training loop of one's own: handwritten digits, BatchNorm, AdamW, an update after each step.

python examples/loops/tracker.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import fedsash as fs


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        share = float((model(x).argmax(1) == y).float().mean())
    model.train()
    return share


def main(epochs: int = 30) -> dict[str, float]:
    """Train, and give the accuracy of the model and of its averages on images that were not trained on."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels))
    x = torch.tensor(images, dtype=torch.float32)[order] / 16
    y = torch.tensor(labels)[order]
    train = torch.utils.data.TensorDataset(x[:600], y[:600])
    test = (x[600:], y[600:])
    loader = torch.utils.data.DataLoader(train, batch_size=20, shuffle=True)

    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    averages = {"window": fs.Window(100, buffers="re-estimate"), "ema": fs.EMA(0.99, warmup=True)}
    tracker = fs.Tracker(averages, model, trajectory_every=30)
    for _ in range(epochs):
        for inputs, targets in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimiser.step()
            tracker.update()

    found = {"model": accuracy(model, *test)}
    with tracker.applied("window", batches=loader):
        found["window"] = accuracy(model, *test)
    found["ema"] = accuracy(tracker.averaged_module("ema"), *test)
    with tracker.applied(tracker.window(30 * epochs // 2)):  # a window that nobody named before the training
        found["the last half"] = accuracy(model, *test)
    return found


if __name__ == "__main__":
    for name, share in main().items():
        print(f"{name:15} {share:.2%}")
