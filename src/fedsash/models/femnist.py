"""FedJAX's network for handwritten characters, which WiMA trains on FEMNIST."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from torch import nn

from .parts import image, max_of_relu, network


def femnist_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """CNN with dropout (FedJAX, WiMA, FEMNIST): 1,206,590 parameters at 1x28x28 and 62 classes.

        conv 3x3 32, no padding -> ReLU -> conv 3x3 64, no padding -> ReLU -> maxpool 2 -> dropout 0.25 -> flatten
        -> fc 128 -> ReLU -> dropout 0.5 -> fc classes

    Initial weights are normal with standard deviation 1/sqrt(fan in), truncated at two standard deviations; biases are
    0. FedJAX flattens with the channels last, which matters only if its weights are copied. Raises `SettingError` for
    images below 6 pixels.
    """
    channels, *sides = image("femnist_cnn", shape, smallest=6)
    height, breadth = ((side - 4) // 2 for side in sides)
    features = nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3), *max_of_relu(2)),
        *(nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(64 * height * breadth, 128), nn.ReLU(), nn.Dropout(0.5)),
    )
    model = network(features, nn.Linear(128, classes))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            _start(layer)
    return model


def _start(layer: nn.Conv2d | nn.Linear) -> None:
    std = 1 / sqrt(layer.weight[0].numel())
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
