"""VGG with GroupNorm, as IMA trains it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from .parts import image, network

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""The widths of the convolutions (configuration A of Simonyan and Zisserman 2015). Each stage ends with a pooling."""


def vgg11_gn(shape: Sequence[int], classes: int) -> nn.Module:
    """VGG-11 with GroupNorm (IMA): 9,292,938 parameters for 10 classes, 9,304,548 for 100.

    Eight convolutions 3x3 with bias, each followed by GroupNorm with two groups and ReLU. Then fc 512 -> 128 -> classes
    without ReLU or dropout. Images larger than 32 pixels leave several positions; their mean is taken, so the number of
    parameters is the same for all sizes. PyTorch's default initialisation. Raises `SettingError` for images below 32
    pixels.
    """
    channels, _, _ = image("vgg11_gn", shape, smallest=32)
    layers: list[nn.Module] = []
    for stage in STAGES:
        for width in stage:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(2, width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 128))
    return network(features, nn.Linear(128, classes))
