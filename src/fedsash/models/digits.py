"""The network of the IMA paper (Zhou et al.) for Digit-Five."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from torch import nn
from typing_extensions import Doc

from ..settings.errors import check_choice
from .parts import image, network


def digit_five_cnn(
    shape: Sequence[int],
    classes: int,
    variant: Annotated[
        Literal["code", "paper"], Doc('whose network: that of the published "code", or of the "paper"')
    ] = "code",
) -> nn.Module:
    """CNN with GroupNorm (IMA, Digit-Five): 806,090 parameters at 3x28x28 and 10 classes.

        conv 5x5 64, GN -> ReLU -> maxpool 2 -> conv 5x5 64, GN -> ReLU -> maxpool 2 -> conv 5x5 128, GN -> ReLU
        -> maxpool 2 -> flatten -> fc 384 -> ReLU -> fc 128 (the feature, without a ReLU) -> fc classes

    All convolutions keep the size. GroupNorm has two groups. PyTorch's default initialisation. This is the network of
    the published code. In the paper's Table 4 the first linear layer has 6272 inputs, so there is no third pooling, and
    2048 outputs: `variant = "paper"`, 13,423,434 parameters. Raises `SettingError` for images below 8 pixels or another
    variant.
    """
    channels, *sides = image("digit_five_cnn", shape, smallest=8)
    check_choice("digit_five_cnn.variant", variant, "code", "paper")
    poolings, hidden = (3, 384) if variant == "code" else (2, 2048)
    height, breadth = (side // 2**poolings for side in sides)
    features = nn.Sequential(
        *(*_convolution(channels, 64), nn.MaxPool2d(2)),
        *(*_convolution(64, 64), nn.MaxPool2d(2)),
        *(*_convolution(64, 128), nn.MaxPool2d(2) if poolings == 3 else nn.Identity()),
        nn.Flatten(),
        *(nn.Linear(128 * height * breadth, hidden), nn.ReLU()),
        nn.Linear(hidden, 128),
    )
    return network(features, nn.Linear(128, classes))


def _convolution(channels: int, width: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, width, 5, padding=2), nn.GroupNorm(2, width), nn.ReLU()
