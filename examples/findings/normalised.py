"""The network of normalisation.toml: LeNet-5 with a normalisation that it does not have."""

from torch import nn


def lenet5(groups: int = 2, classes: int = 10) -> nn.Module:
    """LeNet-5 for 3x32x32 pixels with GroupNorm after each convolution and LayerNorm after each hidden linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.GroupNorm(groups, 6), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(6, 16, 5), nn.GroupNorm(groups, 16), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.LayerNorm(120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.LayerNorm(84), nn.ReLU()),
        nn.Linear(84, classes),
    )
