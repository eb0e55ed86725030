"""Segmentation: which pixels of a noisy 8x8 image belong to the stroke of a digit?

python examples/tasks/segmentation.py
"""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import fedsash as fs


def data() -> fs.FederatedData:
    """Twenty writers' worth of digits: label-skewed clients, and a class for each pixel, 0 (paper) or 1 (ink)."""
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype(np.float32) / 16
    ink = (images[:, 0] > 0.4).astype(np.int64)
    noisy = images + np.random.default_rng(0).normal(0, 0.4, images.shape).astype(np.float32)
    train = slice(0, 1400)
    test = slice(1400, None)
    clients = fs.Dirichlet(clients=20, alpha=0.1)(np.asarray(digits[train]), 0)
    return fs.FederatedData.from_arrays(
        noisy[train], ink[train], clients, test=(noisy[test], ink[test]), task=fs.tasks.Segmentation()
    )


def federation() -> fs.Federation:
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1))
    return fs.Federation(
        model,
        data(),
        local=fs.LocalTraining(lr=0.3, batch=20, epochs=2),
        sampling=fs.Uniform(5),
        averages={"window10": fs.Window(10)},
    )


if __name__ == "__main__":
    print(fs.run(federation(), rounds=60))
